"""Sizes and thresholds of an embedded join. They change its speed and its memory, never its results.

A plan carries a `Tuning`; code that runs a part of the plan reads its group. The defaults are measured
(`benchmarks/indexes/chooser.py`, `benchmarks/topologies/topologies.py`). Tests replace them by small numbers, so that a
few tuples take every path.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class IndexCosts:
    """What a push into an index costs, beyond a scan of an empty window.

    Every push costs `per_push`. A push of many more than `few_tuples` tuples costs up to the fraction `several` more,
    and every `batch` tuples cost `per_push` again. Checking `few_candidates` candidates per probe doubles that last
    part.
    """

    per_push: float = 730_000
    several: float = 0.33
    few_tuples: float = 12
    batch: float = 235
    few_candidates: float = 20
    most_candidates: float = 4  # a lookup of two bands together leaves at most 4 times `few_candidates`
    isolated_pair: float = 45  # the cost of a match in a scan if no neighbouring tuple matches
    fewest_tuples: int = 1_024  # always scan smaller windows

    def of_push(self, batch: float, checked: float = 0.0, scattered: float = 0.0) -> float:
        """The cost of a push of `batch` tuples. `checked`: candidates per probe, as a multiple of `few_candidates`;
        `scattered`: those that are not adjacent to another one, which matters in small pushes."""
        several = self.several * batch / (batch + self.few_tuples)
        return self.per_push * (1 + several + scattered / 8 + batch / self.batch * (1 + checked))


@dataclass(frozen=True)
class ThreadCosts:
    """What a tuple costs where pushes of 64 are gathered, in microseconds of one thread (`plan/thread_costs.py`)."""

    caller: float = 0.2  # the caller's own work in `three_step`: checks, storing, result rows
    feeder: float = 0.35  # the same in ScaleJoin, whose caller also hands tuples over and collects pairs
    reader: float = 0.12  # what each of ScaleJoin's workers does with every tuple besides comparing
    caller_sorting: float = 0.05  # more for results in time order
    reader_sorting: float = 0.2
    hand_over: float = 20.0  # giving one helper thread its part of a push, whatever its size
    band: float = 2.8e-5  # one comparison of a 32-bit band by a scan
    expression: float = 4e-4  # one comparison of any other condition
    worth: float = (
        1.15  # let other threads work between calls where that is expected to be this many times as fast
    )


@dataclass(frozen=True)
class ChoiceTuning:
    """Thresholds for the structure of a new subwindow (`plan/subwindows.py`)."""

    # Hash in windows of at most this many tuples. A probe of a larger one would search so many hash tables that sorted
    # arrays, which are merged, are faster.
    hashed_up_to: int = 4_700_000
    # The tuples of a batch share the cost of a call to a table. So large batches raise that limit by up to this
    # fraction,
    more_in_batches: float = 1.15
    # and batches of this many tuples by half of it.
    medium_batch: int = 100
    # In subwindows this large, prefer 32-bit places in strips to room for keys not seen yet.
    worth_narrow: int = 1 << 20
    # Look up two bands together if the better one alone leaves at least this many candidates per probe,
    many_candidates: int = 24
    # and at least this many per batch.
    many_of_a_batch: int = 500


@dataclass(frozen=True)
class WindowTuning:
    """How windows are cut into subwindows, and how threads share the work (`index/`)."""

    # A new subwindow has room for 1 / `share` of the window, in tuples, between these limits. Merged subwindows respect
    # the upper limit, too.
    smallest_subwindow: int = 4_096
    largest_subwindow: int = 1 << 20
    share: int = 4
    # Merge this many tuples for each tuple inserted: three times the number of levels, so that merges end soon.
    merged_each: int = 16
    # Wake another thread for at least this many comparisons of a scan (a tenth of a millisecond), or lookups in an
    # index.
    shared_comparisons: int = 1 << 21
    shared_lookups: int = 32_768
    # Share a merge of at least this many moves, half a millisecond.
    shared_moves: int = 1 << 17
    # A window compares the costs of scanning and indexing at least once per this many tuples.
    longest_pause: int = 262_144

    def capacity(self, held: int) -> int:
        """The size of a new subwindow of a window that holds this many tuples: a power of two between the limits."""
        return min(
            max(self.smallest_subwindow, 1 << (held // self.share).bit_length()), self.largest_subwindow
        )


@dataclass(frozen=True)
class HandshakeTuning:
    """Both handshake joins (`topologies/handshake/`)."""

    # The most tuples of a message, to windows that are scanned and to windows that are indexed.
    batch: int = 256
    indexed_batch: int = 1_024
    # The number of messages that a channel holds.
    capacity: int = 64
    # After this many tuples of one side, send an empty message in the other direction so that they can expire.
    unheard: int = 1_024
    # Low latency: the most arrivals of a side that travel the chain at a time. With this many messages of a side on
    # their way, no message without tuples is sent.
    credit: int = 8
    most_on_way: int = 16
    # Handshake join: no tuples enter while more than this many messages of a side have expired and are still in the
    # chain.
    most_expired: int = 64
    # Handshake join with compiled nodes: so many seconds after tuples have entered, others wait for a full message.
    pace: float = 0.002
    # The smallest store of a compiled node has room for this many rows.
    fewest_rows: int = 1_024
    # A node waits for the collector while it has this many pairs: interpreted nodes, and compiled ones.
    waiting_pairs: int = 1 << 20
    compiled_waiting_pairs: int = 65_536


@dataclass(frozen=True)
class PanJoinTuning:
    """PanJoin (`topologies/panjoin/`)."""

    batch: int = 16_384  # the most tuples of a command
    credit: int = 3  # commands that a worker may hold: it gets the next while it runs the last
    # The limits of a subwindow's size, in tuples, and about how many subwindows a worker has of each side.
    smallest_subwindow: int = 4_096
    largest_subwindow: int = 1 << 20
    share: int = 4
    stretch: int = 65_536  # the manager builds about this many pairs from records at a time
    waiting: int = 1 << 20  # a worker waits for the manager while it has this many pairs or records
    many: float = 128  # with this many matches per probe, workers answer with records instead of pairs


@dataclass(frozen=True)
class ScaleJoinTuning:
    """ScaleJoin (`topologies/scalejoin/`)."""

    # The initial number of nodes in the input gate, and for each worker in the output gate.
    capacity: int = 4_096
    # The driver waits for a worker that is this many ready tuples behind.
    waiting: int = 8_192
    # A worker waits for the driver while it has this many pairs: interpreted workers, and compiled ones.
    waiting_pairs: int = 1 << 18
    compiled_waiting_pairs: int = 65_536
    # The smallest store of a compiled worker has room for this many rows.
    fewest_rows: int = 1_024


@dataclass(frozen=True)
class CellJoinTuning:
    """CellJoin (`topologies/celljoin.py`)."""

    batch: int = 4_096  # join at most this many tuples at a time
    round: int = 1 << 18  # a worker collects this many pairs before it waits for the driver


@dataclass(frozen=True)
class EngineTuning:
    """The thread that drives a join (`engine/`)."""

    step_results: int = 1_000_000  # a step makes about this many results at most, so that it ends soon
    batch_rows: int = 65_536  # the most rows of a result batch
    slack_rows: int = 4_096  # look for rows to release after at least this many new ones
    # Hand over gathered pushes once this much waits: larger batches are hardly faster.
    gathered_rows: int = 4_096
    gathered_bytes: int = 1 << 22
    first_poll: float = 2.0  # the seconds that a push waits for the first poll of another thread or task
    patience: int = 20_000  # a poll that waits checks for interrupts after this many microseconds


@dataclass(frozen=True)
class CallerTuning:
    """Joins in the calling thread: `three_step`, and as-of joins by an equality."""

    largest_step: int = 131_072  # the most probes of one step
    smallest_table: int = 1_024  # the places of the smallest table of last rows
    carried_from: int = 4_096  # carry needed rows forward once this many rows are held that are not needed


@dataclass(frozen=True)
class NearestTuning:
    """Nearest joins by searches (`topologies/outcomes/nearest.py`)."""

    largest_step: int = 4_096  # the most left rows of one step
    step_places: int = 1 << 18  # the most places that one call of the kernel finds
    kept_blocks: int = 1_024  # a list of at most this many blocks never gives them back


@dataclass(frozen=True)
class TeamTuning:
    """Threads that share the probes of a batch (`topologies/runtime/team.py`)."""

    round: int = 262_144  # a thread collects this many pairs before it waits until they are taken


@dataclass(frozen=True)
class Tuning:
    """All groups. Planning reads `threads`; planning and growing windows read `costs` and `choice`; the parts that the
    other groups name read those."""

    costs: IndexCosts = field(default_factory=IndexCosts)
    threads: ThreadCosts = field(default_factory=ThreadCosts)
    choice: ChoiceTuning = field(default_factory=ChoiceTuning)
    window: WindowTuning = field(default_factory=WindowTuning)
    engine: EngineTuning = field(default_factory=EngineTuning)
    caller: CallerTuning = field(default_factory=CallerTuning)
    nearest: NearestTuning = field(default_factory=NearestTuning)
    team: TeamTuning = field(default_factory=TeamTuning)
    handshake: HandshakeTuning = field(default_factory=HandshakeTuning)
    panjoin: PanJoinTuning = field(default_factory=PanJoinTuning)
    scalejoin: ScaleJoinTuning = field(default_factory=ScaleJoinTuning)
    celljoin: CellJoinTuning = field(default_factory=CellJoinTuning)


DEFAULT_TUNING = Tuning()
