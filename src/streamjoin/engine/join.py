"""A running join: Arrow in, Arrow out, in this process.

`Join` is what callers see. It checks what comes in (engine/intake.py), lets one thread at a time drive the join
(engine/work.py, engine/driver.py), and waits for others. The driver's mutex is held while tuples are taken and
joined; polls need only the lock of the pushed rows. A push waits for room in the result buffer before it is taken,
never for room for its own results.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from streamjoin.engine.async_calls import given_up, in_thread
from streamjoin.engine.driver import Driver
from streamjoin.engine.forks import copy_error, own
from streamjoin.engine.intake import CheckedRows, Intake, as_ticks
from streamjoin.engine.reading import ResultLoops
from streamjoin.engine.sources import Source, seconds_of_silence
from streamjoin.engine.stats import Stats
from streamjoin.engine.timer import Clock, Timer
from streamjoin.engine.watching import JoinView
from streamjoin.engine.work import Outcome, reentrant_error
from streamjoin.page.open import LOOPBACK, open_page
from streamjoin.plan.physical import Plan
from streamjoin.semantics.errors import Backpressure, ClosedError, InputError, StreamJoinError, short_repr
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.runtime.waiting import LOG

if TYPE_CHECKING:
    from streamjoin.page.server import JoinPage


class Join(ResultLoops):
    """A running join; made by `open_join`. All methods may be called from any thread."""

    def __init__(self, plan: Plan, clock: Clock | None = None):
        super().__init__(plan.tuning.engine.first_poll)
        self.plan, self.spec = plan, plan.spec
        self._intake = {side: Intake(plan, side) for side in SIDES}
        self._clock = clock or time.perf_counter
        self._timer = Timer(self, self._clock)
        self._driver = Driver(plan, self._intake, self._clock, self._timer.wake)
        self._topology, self._results = self._driver.topology, self._driver.results
        self._sources = self._driver.sources
        self._work = self._driver.work
        self._complete = False  # both sides have ended, and all results have been taken
        self._state = "open"  # then "finishing", "closed"; in a fork of this process "copy"
        self._discarded = False  # what was held, once closed
        self._page: JoinPage | None = None
        own(self)

    # Input

    def push(self, side: str, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of one side's default source.

        Bad data raises `InputError` and changes nothing. If the result buffer is full, this waits until another thread
        has polled, and raises `Backpressure` if that wait would never end: if no other thread polls this join, or if
        an event loop runs in this one. With `timeout` it waits at most that many seconds, and does not check whether
        another thread polls. After `Backpressure`, or an interrupt (Ctrl-C) of the wait, nothing of `data` was taken:
        poll until nothing comes, then push again. Data that was taken is joined before this returns, as far as its
        results fit the buffer; later calls of `poll`, `push` or `finish` do the rest.
        """
        if side not in SIDES:
            raise _not_a_side(side)
        self._push(side, None, data, timeout)

    async def push_async(self, side: str, data: Any, timeout: float | None = None) -> None:
        """`push` without blocking the event loop. A push that is cancelled while it waits for room took nothing; one
        that is being joined is taken. Await each push before the next one of the same source, because nothing else
        keeps them in order."""
        await in_thread(self.push, side, data, timeout)

    def push_from(self, source: Source, data: Any, timeout: float | None) -> None:
        """For `Source.push`."""
        self._push(source.side, source, data, timeout)

    def source(self, side: str, name: str, idle_after: str | timedelta | None = None) -> Source:
        """Open one more physical stream of a side. Open all of them before pushing: rows of a new source from before
        the point that the join has reached are late.

        `idle_after`: after that long without data or `advance`, such as "10 seconds" of real time, the source no
        longer holds the others back. Its later rows are late if they are behind what the others have reached.
        """
        self._check_side(side)
        if not isinstance(name, str):
            raise InputError(
                f"a source's name is a string, not {name!r}", field="name", given=name, allowed="a string"
            )
        return self._working(self._open_source, side, name, seconds_of_silence(idle_after))

    def _open_source(self, side: str, name: str, idle_after: float) -> Source:
        self._check_open()
        known = self._sources.find(side, "") if name == "" else None
        source = known or self._sources.add(self._new_source(side, name))
        if idle_after < math.inf:
            self._sources.watch(source, idle_after, self._clock())
            self._timer.wake()
        return source

    def _new_source(self, side: str, name: str) -> Source:
        if side in self._sources.ended:
            raise ClosedError(f"the {side} side has ended: no source can be opened")
        return Source(self, side, name, self.spec.lateness_ticks, show=self.spec.time_text)

    def _push(self, side: str, source: Source | None, data: Any, timeout: float | None) -> None:
        """Push to a source, or to the default one, which is opened by the first data it takes."""
        if timeout is not None:
            _check_seconds(timeout, "seconds from 0 on, or None to wait while another thread polls")
        rows = self._intake[side].checked(data)
        arrived = self._clock()
        deadline = math.inf if timeout is None else time.perf_counter() + timeout
        while not self._working(self._take, side, source, rows, arrived, deadline=deadline):
            self._wait_for_room(timeout, deadline)

    def _take(self, side: str, source: Source | None, rows: CheckedRows, arrived: float) -> bool:
        """Take checked rows and join them, if results fit. Return whether they were taken."""
        self._check_open()
        sources = self._sources
        into = source or sources.find(side, "") or self._new_source(side, "")
        if into.closed:
            if side in sources.ended:
                raise ClosedError(f"the {side} side has ended: nothing can be pushed to it")
            raise ClosedError(f"source {into.name!r} of {side} is closed")
        if into.idle_after < math.inf:
            self._note_active(into)
        late = sources.late(into, rows.ts, self._topology.settles)
        return self._driver.take(into, rows, late, arrived, self._work.missed)

    def _wait_for_room(self, timeout: float | None, deadline: float) -> None:
        """Wait until results were polled. Raise `Backpressure` if that takes longer than `timeout`; without a timeout,
        if no other thread or task polls."""
        why_hopeless = self._pollers.why_hopeless if timeout is None else given_up
        if reason := self._results.wait_for_room(deadline, why_hopeless) or given_up():
            raise Backpressure(
                f"{self._results.fill}, and {reason}: nothing of this push was taken; poll until it gives nothing, "
                "then push again"
            )

    def late(self, side: str) -> pa.Table:
        """Take the rows of one side that came too late, in the order they came (of more than a million, the last)."""
        self._check_side(side)
        self._check_process()
        return self._driver.admission.take_late(side, self.spec.side_schema(side))

    # Progress without data

    def end(self, side: str | None = None) -> None:
        """No more tuples will come from any source of this side; the other side may continue. Without a side, both end,
        and results can still be polled: a loop over them ends with the last one."""
        if side is not None:
            self._check_side(side)
        self._working(self._end, SIDES if side is None else (side,))

    def _end(self, sides: tuple[str, ...]) -> None:
        self._check_open()
        for side in sides:
            self._sources.end(side)
        self._progress()

    def advance_source(self, source: Source, ts: int | datetime) -> None:
        """For `Source.advance`."""
        self._working(self._advance, source, as_ticks(ts, self.spec))

    def _advance(self, source: Source, ticks: int) -> None:
        self._check_open()
        if source.closed:
            raise ClosedError(f"source {source.name!r} of {source.side} is closed")
        source.promised = max(source.promised, ticks)
        if source.idle_after < math.inf:
            self._note_active(source)
        self._progress()

    def close_source(self, source: Source) -> None:
        """For `Source.close`."""
        self._working(self._close_source, source)

    def _close_source(self, source: Source) -> None:
        if self._state == "open" and not source.closed:
            source.closed = True
            self._progress()

    # Progress of time alone

    def next_due(self) -> float:
        """For the timer."""
        if self._state != "open" or self._driver.failure is not None:
            return math.inf
        waiting = (
            self._driver.admission.until if self._results.room > 0 else math.inf
        )  # else a poll continues
        return min(waiting, self._sources.next_silence)

    def on_time(self) -> None:
        """For the timer. If another thread drives the join, this tries again soon. An error stops the join, and the
        next call of a user raises it."""
        with suppress(Exception):
            self._work.run(self._on_time, timeout=0)
        self._discard_if_closed()
        self._work.tell()

    def _on_time(self) -> None:
        if self._state != "open":
            return
        for source in self._sources.note_silence(self._clock()):
            LOG.info(
                "source %r of %s brought nothing for %g s: it no longer holds the others back",
                *(source.name, source.side, source.idle_after),
            )
            self._driver.admission.progress()
        self._run()

    def _note_active(self, source: Source) -> None:
        if self._sources.note_active(source, self._clock()):
            self._timer.wake()

    def _progress(self) -> None:
        self._driver.progress()
        self._run()

    def _run(self) -> None:
        if self._driver.run():
            self._driver.release()

    # Output

    def poll(self, timeout: float = 0.0) -> list[pa.RecordBatch]:
        """The result batches ready so far, of no more than `max_results` rows; if there are none, those that come
        within `timeout` seconds. By default it never blocks. Resumes work that waited for room."""
        if timeout != 0.0:
            _check_seconds(timeout, "seconds from 0 on")
        self._check_process()
        return self._take_all_held() or self._poll_within(timeout)

    def poll_table(self, timeout: float = 0.0) -> pa.Table:
        """As `poll`, as one table of the join's schema; an empty one if nothing is ready. Punctuations are left out."""
        return self._table(self.poll(timeout))

    async def poll_async(self, timeout: float = 0.0) -> list[pa.RecordBatch]:
        """`poll` without blocking the event loop."""
        self._check_process()
        _check_seconds(timeout, "seconds from 0 on")
        await in_thread(self._hold, timeout)
        return self._take_all_held()

    def _is_over(self) -> bool:
        return self._complete or self._state != "open"

    def _missing(self) -> str:
        sides = [side for side in SIDES if side not in self._sources.ended]
        if not sides:
            return "both sides have ended, and the last results are not ready yet"
        return f"no result is ready, and {' and '.join(sides)} may still bring rows"

    def _poll_within(self, timeout: float) -> list[pa.RecordBatch]:
        self._pollers.note()
        if timeout != 0.0:
            return self._wait_for_results(timeout)
        batches = self._poll()
        self._work.tell()  # a blocked poll may have found the mutex taken by this call
        return batches

    def _poll(self) -> list[pa.RecordBatch]:
        self._driver.check()
        if self._work.mine:
            return self._driver.drain()
        try:
            batches = self._work.run(self._run_and_drain, timeout=0)
            self._work.missed = batches is None
            return self._driver.drain() if batches is None else batches
        finally:
            self._discard_if_closed()

    def _run_and_drain(self) -> list[pa.RecordBatch]:
        driver = self._driver
        if self._state != "open":
            return driver.drain()
        batches: list[pa.RecordBatch] = []
        try:
            driver.admission.look()
            done = driver.run(promises=True)
            batches = driver.drain()
            if not done:
                done = driver.run()  # resume what waited for room
            elif not batches and len(self._sources.ended) == len(SIDES):
                self._complete = True
            if done:
                driver.release()  # also the rows of these results
        except BaseException as error:
            # Return what was found before the failure; the next call raises it.
            if batches and driver.failure is None:
                driver.fail(error)  # an interrupt after the results were taken
            if driver.failure is None or not (batches := batches or driver.drain()):
                raise
        return batches

    def _wait_for_results(self, timeout: float) -> list[pa.RecordBatch]:
        """Poll, and again whenever a worker thread or a pushing thread has found something. The wait ends from time to
        time, so that interrupts and failures are seen."""
        deadline, found = time.perf_counter() + timeout, self._topology.found
        with self._driver.rows.lock:
            self._work.polls += 1  # before looking: what comes later rings
            found.awaited += 1  # nothing is held back for pushes to come
        try:
            while True:
                seen = found.read()
                batches = self._poll()
                rest = deadline - time.perf_counter()
                if batches or rest <= 0 or self._is_over() or given_up():
                    return batches
                found.wait(seen, math.ceil(min(1e6 * rest, self.plan.tuning.engine.patience)))
        finally:
            with self._driver.rows.lock:
                self._work.polls -= 1
                found.awaited -= 1

    def finish(self) -> pa.Table:
        """End both sides, return the results that no poll and no loop has taken, and close the join. Loops over results
        in other threads end then; call `end()` instead if they should get the rest."""
        self._check_process()
        if self._work.mine:
            raise reentrant_error()
        with self._driver.rows.lock:
            self._check_open()
            self._state = "finishing"
        self._results.lift_bound()  # a push that waits for room continues
        return self._table(self._working(self._finish))

    async def finish_async(self) -> pa.Table:
        """`finish` without blocking the event loop. Do not cancel it: the results would be lost."""
        return await in_thread(self.finish)

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        schema = self.spec.schema
        plain = [batch.replace_schema_metadata(schema.metadata) for batch in batches]  # without punctuations
        return pa.Table.from_batches(plain, schema)

    def _finish(self) -> list[pa.RecordBatch]:
        self._driver.check()
        for side in SIDES:
            self._sources.end(side)
        self._progress()
        if self._state == "closed":
            raise ClosedError("the join was closed while it finished")
        batches = [*self._take_all_held(), *self._driver.drain()]
        self._state = "closed"
        self._end_threads()
        return batches

    def close(self) -> None:
        """Give up what has not been polled. Closing twice is harmless, and so is closing the copy of a join that a fork
        of the process has."""
        if self._state == "copy":
            return
        with self._driver.rows.lock:  # else a `finish` that has just begun would not see it
            self._state = "closed"
        self._driver.closed = True
        self._results.lift_bound()
        self._topology.found.stop()  # a poll that waits ends, and so does a step
        self._discard_if_closed()

    def _working(self, work: Callable[..., Outcome], *given: Any, deadline: float = math.inf) -> Outcome:
        """Call `work` once no other thread drives the join. Raise if that is after the deadline; with a deadline,
        `work` must not return None."""
        if self._state == "copy":
            raise copy_error()
        try:
            if deadline == math.inf:
                return self._work.run(work, *given)  # type: ignore[return-value]  # None only after a timeout
            outcome = self._work.run(work, *given, timeout=deadline - time.perf_counter())
            if outcome is None:
                raise Backpressure(
                    "another call has not finished in time: nothing of this push was taken; push again"
                )
            return outcome
        finally:
            if self._state == "closed":
                self._discard_if_closed()
            if self._work.polls:
                self._work.tell()

    def _discard_if_closed(self) -> None:
        """Release all tuples, rows and results, once the join is closed. If another thread drives the join, it does
        this afterwards."""
        if self._state == "closed" and not self._discarded and not self._work.mine:
            self._work.run(self._discard, timeout=0)

    def _end_threads(self) -> None:
        self._timer.stop()
        if self._page is not None:
            self._page.stop()

    def _discard(self) -> None:
        self._end_threads()
        self._driver.discard()
        self._held.clear()
        self._discarded = True

    def __enter__(self) -> Join:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Join:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.close)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the results."""
        return self.spec.schema

    def stats(self) -> Stats:
        """Counts and sizes; see `Stats`. Waits for a step in progress."""
        return self._working(self._stats)

    def _stats(self) -> Stats:
        return self._driver.stats()

    def look(self, patience: float) -> Stats | None:
        """For the page: `stats`, or None if they take longer than `patience` seconds."""
        try:
            return self._work.run(self._stats, timeout=patience)
        finally:
            self._discard_if_closed()
            self._work.tell()

    def serve_page(self, host: str = LOOPBACK, port: int = 0) -> JoinPage:
        """Serve a page that shows the join while it runs, at the `url` of what this returns; `/metrics` there has the
        figures for Prometheus. The page ends with its `close()`, and with the join. It is read-only, and shows the last
        joined rows to everyone who can connect: by default, every user of this machine. `port`: 0 for a free one.
        Needs `pip install 'streamjoin[page]'`."""
        self._check_process()
        self._check_open()
        if self._page is not None and self._page.is_open:
            raise StreamJoinError(
                f"this join has a page already, at {self._page.url}: close it to open another"
            )
        self._page = page = open_page(JoinView(self, self._driver), host, port)
        own(page)
        weakref.finalize(self, page.stop)
        return page

    def __repr__(self) -> str:
        """A snapshot of the counts. Does not wait for a step in progress."""
        taken = self._driver.admission.taken
        return (
            f"<Join {self._state}: {taken['left']:,} left and {taken['right']:,} right tuples, "
            f"{self._results.total:,} matches, {self._results.rows:,} results to poll; {self.plan.topology}>"
        )

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>{self.plan._repr_html_()}"

    def __reduce__(self) -> NoReturn:
        raise StreamJoinError(
            "a Join cannot be pickled or copied, as its threads and windows belong to the process that opened it: "
            "send its spec, and open a join there"
        )

    def mark_as_copy(self) -> None:
        """For `forks`."""
        self._state = "copy"
        self._held.clear()  # the original process hands out these batches

    # Guards

    def _check_process(self) -> None:
        """Raise in a fork. Call it before taking a lock: the thread that holds the lock may not exist here."""
        if self._state == "copy":
            raise copy_error()

    def _check_side(self, side: str) -> None:
        if side not in SIDES:
            raise _not_a_side(side)

    def _check_open(self) -> None:
        if self._driver.failure is not None:
            self._driver.check()
        if self._state != "open":
            raise ClosedError("the join is closed: open a new one with open_join or stream")


def _not_a_side(side: object) -> InputError:
    hint = "" if isinstance(side, str) else "; the side comes first, as in push('left', rows)"
    message = f"side is {short_repr(side)}; allowed: left, right{hint}"
    return InputError(message, field="side", given=side, allowed=SIDES)


def _check_seconds(timeout: float, allowed: str) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(
            f"timeout is {timeout!r}; allowed: {allowed}", field="timeout", given=timeout, allowed=allowed
        )
