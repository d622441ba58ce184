"""Prepares the kernels of a join: loads them from the cache on disk, or has them compiled.

Compiling all kernels of a new kind of predicate takes about ten seconds. A join that runs in the calling thread need
not wait for them: it starts at once with NumPy forms of the kernels (`jit/readiness.py`), while another process
compiles (`jit/elsewhere.py`). A thread of this process waits for that, then loads the kernels. Other topologies need
compiled nodes, and a forced index needs its structure, so opening such a join waits.

Nothing here waits without limit for another process, and the join does not wait for the thread: if the other process
fails, is stopped or is slow, the thread compiles, or the join does (`readiness`).
"""

from __future__ import annotations

import atexit
import functools
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

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
    meanwhile by another process, which calls `compile_join`. Without that function, always before this returns, and
    silently. A mistake in a Python function as predicate raises `PredicateError` here in any case."""
    with readiness.compiling():
        rehearse_callable(plan)
    try:
        with readiness.loading():
            rehearse_plan(plan)
    except readiness.NotReady as missing:
        if compile_join is not None and starts_without_kernels(plan) and elsewhere.is_possible():
            if missing.cached:
                _log_start()
            Preparation(plan, _call_for(plan, compile_join) if missing.cached else None).start()
            return
        if missing.cached and compile_join is not None:
            LOG.warning(
                "compiling kernels: opening a join like this for the first time takes about ten seconds"
            )
        with readiness.compiling():
            rehearse_plan(plan)


@functools.cache
def _log_start() -> None:
    """Once a process, however many joins it opens."""
    LOG.warning("compiling kernels in another process: joins are slower for about ten seconds")


def starts_without_kernels(plan: Plan) -> bool:
    """Whether all kernels that the first pushes need have NumPy forms."""
    in_caller = plan.nodes.kind in ("caller", "last_rows", "searching")
    return in_caller and all(plan.windows[side].kind != "chain" for side in SIDES)


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
    """Prepares the kernels of a plan while its join runs, in a thread that ends when this process does."""

    def __init__(
        self, plan: Plan, call: elsewhere.RemoteCall | None, longest_turn: float = elsewhere.LONGEST_TURN
    ):
        """`call`: what another process compiles the missing kernels by, if it can. `longest_turn`: the seconds to wait
        for a third process that compiles."""
        self._plan, self._call, self._longest_turn = plan, call, longest_turn
        self._stopped = threading.Event()
        self._at_work = threading.Lock()  # held while the thread compiles or loads kernels
        self._thread = threading.Thread(target=self._run, name="streamjoin-kernels", daemon=True)

    def start(self) -> None:
        """Start the other process, unless a third one compiles already, and the thread. So even a script that ends in a
        moment has its kernels compiled."""
        try:
            readiness.begin(self)
            atexit.register(self._stop)
            if self._call is not None:
                with elsewhere.turn(self._stopped, 0) as turn:
                    if turn.handle is not None:
                        self._call.start(turn)
            self._thread.start()
        except (
            BaseException
        ):  # such as an interrupt. The thread may have begun, or may begin yet: it does nothing then
            self._stopped.set()
            self._end()
            raise

    def _run(self) -> None:
        try:
            if self._call is not None:
                self._compile_elsewhere(self._call)
            self._rehearse(readiness.compiling)
        except readiness.Stopped:
            pass
        finally:
            self._end()

    def _end(self) -> None:
        readiness.end(self)
        atexit.unregister(self._stop)

    def _rehearse(self, mode: Callable[[threading.Event], AbstractContextManager[None]]) -> None:
        with self._at_work, mode(self._stopped):
            readiness.check_stopped()
            rehearse_plan(self._plan)

    def _compile_elsewhere(self, call: elsewhere.RemoteCall) -> None:
        try:
            if not call.started:
                self._await_turn(call)
            if call.started:
                call.wait()
        except elsewhere.NotCompiled as error:
            warnings.warn(
                f"the process that compiles kernels failed, so this process compiles them: {error}",
                StreamJoinWarning,
                stacklevel=2,
            )

    def _await_turn(self, call: elsewhere.RemoteCall) -> None:
        """Wait for the third process, and start the other one if kernels are still missing."""
        with elsewhere.turn(self._stopped, self._longest_turn) as turn:
            try:
                self._rehearse(readiness.loading)
            except readiness.NotReady as missing:
                if missing.cached:
                    if turn.handle is None:
                        LOG.warning(
                            "another process has been compiling kernels for %.0f s: this one does not wait for it "
                            "any longer",
                            self._longest_turn,
                        )
                    call.start(turn)

    def _stop(self) -> None:
        """At the end of this process: LLVM must not run then. The other process continues."""
        self._stopped.set()
        with self._at_work:  # at most one kernel
            pass


def _call_for(plan: Plan, compile_join: Compile) -> elsewhere.RemoteCall:
    """What another process does to compile a plan's kernels. It cannot be given a Python function."""
    if plan.analysis is None:
        return elsewhere.RemoteCall(compile_shared, {side: plan.spec.side_schema(side) for side in SIDES})
    return elsewhere.RemoteCall(compile_join, plan.spec, plan.options)
