"""`streamjoin warm`: compiles kernels ahead, so that no join waits for them."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import streamjoin as sj
from streamjoin.cli.jobs import job_module
from streamjoin.cli.terminal import say
from streamjoin.engine.ahead import compile_library, compile_spec, compiled_by, kernel_folder, processor

LIBRARY = "library kernels"


def warm(targets: Sequence[str]) -> None:
    """Compile the kernels of the library, then those of each target, and print what was compiled, and where."""
    works = [(LIBRARY, compile_library), *((target, work_of(target)) for target in targets)]
    folder = kernel_folder()
    for name, work in works:
        began = time.perf_counter()
        count = compiled_by(work)
        told = f"{count} compiled in {time.perf_counter() - began:.1f} s" if count else "compiled already"
        say(f"{name}: {told}")
    say(f"in {folder}, for user {os.geteuid()} and processors of kind {processor()}")


def work_of(target: str) -> Callable[[], None]:
    """What compiles a target: a job file, or `module:name` of a JoinSpec. Reads it, so mistakes show first."""
    if target.endswith(".toml"):
        job = job_module("file").Job.read(Path(target))
        return partial(job_module("ahead").compile_job, job)
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise cannot_compile(target, "a job file (*.toml), or module:name of a JoinSpec")
    specs = list(specs_in(named_object(target, module, name)))
    if not specs:
        raise cannot_compile(target, "the name of a JoinSpec, or of a list or dict of them")
    return partial(compile_all, specs)


def named_object(target: str, module: str, name: str) -> object:
    """The object of this name; modules in the current folder are found, too."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise cannot_compile(
            target, f"a module that Python finds from {here}; there is no {error.name}"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise cannot_compile(target, f"a name that {module} has")
        found = getattr(found, part)
    return found


def specs_in(found: object) -> Iterator[sj.JoinSpec]:
    """The specs in an object: itself, or the items of a list, tuple or dict."""
    if isinstance(found, dict):
        found = list(found.values())
    for each in found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(each, sj.JoinSpec):
            yield each


def compile_all(specs: Sequence[sj.JoinSpec]) -> None:
    for spec in specs:
        compile_spec(spec)


def cannot_compile(target: str, allowed: str) -> sj.SpecError:
    return sj.SpecError(
        f"warm cannot compile {target!r}: give {allowed}", field="what", given=target, allowed=allowed
    )
