"""Compiles kernels before a join needs them, such as while an image is built (`streamjoin warm`).

Everything is compiled in this process, and stays in the cache of compiled kernels, which belongs to one user and one
kind of processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding
import pyarrow as pa

from streamjoin.engine.open import compile_join
from streamjoin.jit import source
from streamjoin.plan.options import Options
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import TimeWindow

NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
EQUAL_KEYS, BAND_OF_KEYS = "left.x = right.x", "left.x BETWEEN right.x - 1 AND right.x + 1"


def kernel_folder() -> Path:
    """The folder of compiled kernels; an error if there is none that this user can fill."""
    folder = source.usable_folder()
    if folder is None:
        raise StreamJoinError(
            f"kernels cannot be kept in {source.folder()}: set STREAMJOIN_CACHE_DIR to a folder that this user can "
            "write",
            field="STREAMJOIN_CACHE_DIR",
            given=source.folder(),
            allowed="a folder that this user can write",
        )
    return folder.path


def processor() -> str:
    """The kind of processor that compiled kernels are for."""
    return str(llvmlite.binding.get_host_cpu_name())


def compiled_by(work: Callable[[], None]) -> int:
    """How many kernels this work adds to the cache."""
    folder = kernel_folder()
    before = _kernels(folder)
    work()
    return len(_kernels(folder) - before)


def _kernels(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.nbc")}


def library_specs() -> Iterator[JoinSpec]:
    """Joins that call the kernels which most joins share: equalities and bands, by the type of the key."""
    for on, kinds in ((EQUAL_KEYS, (pa.string(), *NUMBERS)), (BAND_OF_KEYS, NUMBERS)):
        for kind in kinds:
            schema = pa.schema({"ts": pa.int64(), "x": kind})
            yield JoinSpec(schema, schema, on, TimeWindow(1), "ts", "ts")


def compile_library() -> None:
    """Compile the kernels that most joins share. Takes half a minute where none is cached."""
    for spec in library_specs():
        compile_spec(spec)


def compile_spec(spec: JoinSpec) -> None:
    """Compile what `open_join(spec)` calls. A Python function as predicate is compiled in every process again."""
    compile_join(spec, Options())
