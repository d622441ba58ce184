"""Prepares the kernels of a join: loads them from the cache on disk, or has them compiled.

Compiling all kernels of a new kind of predicate takes about ten seconds. A join that runs in the calling thread need
not wait for them: it starts at once with NumPy forms of the kernels (`jit/readiness.py`), while another process
compiles (`jit/elsewhere.py`). A thread of this process waits for that, then loads the kernels. Other topologies need
compiled nodes, and a forced index needs its structure, so opening such a join waits.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable

import pyarrow as pa

from streamjoin.engine import column_copies
from streamjoin.index.build import compile_plan
from streamjoin.index.rehearsal import rehearse_callable, rehearse_rows
from streamjoin.jit import elsewhere, readiness
from streamjoin.jit.source import StreamJoinWarning
from streamjoin.kernels import stamping
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.runtime.waiting import LOG

Compile = Callable[[JoinSpec, Options], None]


def prepare(plan: Plan, compile_join: Compile | None) -> None:
    """Load the kernels of a plan, or have them compiled: before this returns if the plan needs them at once, else
    meanwhile by another process, which calls `compile_join`; without that function, always before this returns. A
    mistake in a Python function as predicate raises `PredicateError` here in any case."""
    with readiness.compiling():
        rehearse_callable(plan)
    try:
        with readiness.loading():
            rehearse_plan(plan)
    except readiness.NotReady as missing:
        if compile_join is not None and starts_without_kernels(plan) and elsewhere.is_possible():
            if missing.cached:
                LOG.warning("compiling kernels in another process: this join is slower for about ten seconds")
            Preparation(plan, _call_for(plan, compile_join) if missing.cached else None).start()
            return
        if missing.cached:
            LOG.warning(
                "compiling kernels: opening a join like this for the first time takes about ten seconds"
            )
        with readiness.compiling():
            rehearse_plan(plan)


def starts_without_kernels(plan: Plan) -> bool:
    """Whether all kernels that the first pushes need have NumPy forms."""
    return plan.nodes.kind == "caller" and all(plan.windows[side].kind != "chain" for side in SIDES)


def rehearse_plan(plan: Plan) -> None:
    """Call all kernels that pushes may call; the ones that all joins share come first."""
    stamping.rehearse()
    column_copies.rehearse_copies()
    compile_plan(plan)


def compile_shared(schemas: dict[str, pa.Schema]) -> None:
    """Compile the kernels of joins over these schemas that do not depend on the predicate."""
    stamping.rehearse()
    column_copies.rehearse_copies()
    rehearse_rows(schemas)


class Preparation:
    """Prepares the kernels of a plan while its join runs. Ends when this process does."""

    def __init__(self, plan: Plan, call: elsewhere.RemoteCall | None):
        """`call`: what another process compiles the missing kernels by, if it can."""
        self._plan, self._stopped = plan, threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamjoin-kernels", daemon=True)
        self._call = call
        self._pending = readiness.preparing()

    def start(self) -> None:
        self._pending.__enter__()
        atexit.register(self._stop)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._call is not None:
                self._compile_elsewhere(self._call)
            with readiness.compiling(self._stopped):
                rehearse_plan(self._plan)
        except readiness.Stopped:
            pass
        finally:
            self._pending.__exit__(None, None, None)
            atexit.unregister(self._stop)

    def _compile_elsewhere(self, call: elsewhere.RemoteCall) -> None:
        """Fill the cache, unless another process has done it meanwhile."""
        with elsewhere.turn(self._stopped):
            try:
                with readiness.loading(self._stopped):
                    rehearse_plan(self._plan)
            except readiness.NotReady as missing:
                if missing.cached:
                    self._call_out(call)

    def _call_out(self, call: elsewhere.RemoteCall) -> None:
        try:
            call.run()
        except elsewhere.NotCompiled as error:
            if not self._stopped.is_set():
                warnings.warn(
                    f"the process that compiles kernels failed, so this process compiles them: {error}",
                    StreamJoinWarning,
                    stacklevel=2,
                )

    def _stop(self) -> None:
        self._stopped.set()
        if self._call is not None:
            self._call.stop()
        self._thread.join()


def _call_for(plan: Plan, compile_join: Compile) -> elsewhere.RemoteCall:
    """What another process does to compile a plan's kernels. It cannot be given a Python function."""
    if plan.analysis is None:
        return elsewhere.RemoteCall(compile_shared, {side: plan.spec.side_schema(side) for side in SIDES})
    return elsewhere.RemoteCall(compile_join, plan.spec, plan.options)
