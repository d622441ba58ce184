"""Sliding-window joins over two unbounded streams, for any predicate."""

from streamjoin.engine.join import Join
from streamjoin.engine.latency import LatencyHistogram
from streamjoin.engine.one_call import join, stream
from streamjoin.engine.open import explain, open_join, punctuation
from streamjoin.engine.sources import Source
from streamjoin.engine.stats import Stats
from streamjoin.engine.tables import join_tables
from streamjoin.index.stats import IndexStats, SubwindowStats
from streamjoin.jit.source import StreamJoinWarning
from streamjoin.semantics import oracle
from streamjoin.semantics.errors import (
    Backpressure,
    ClosedError,
    IndexNotApplicableError,
    InputError,
    PredicateError,
    SpecError,
    StreamJoinError,
    WindowError,
)
from streamjoin.semantics.keep import AsOf, Nearest
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import Interval, RowWindow, TimeWindow

__version__ = "0.2.0"

__all__ = [
    "AsOf",
    "Backpressure",
    "ClosedError",
    "IndexNotApplicableError",
    "IndexStats",
    "InputError",
    "Interval",
    "Join",
    "JoinSpec",
    "LatencyHistogram",
    "Nearest",
    "PredicateError",
    "RowWindow",
    "Source",
    "SpecError",
    "Stats",
    "StreamJoinError",
    "StreamJoinWarning",
    "SubwindowStats",
    "TimeWindow",
    "WindowError",
    "explain",
    "join",
    "join_tables",
    "open_join",
    "oracle",
    "punctuation",
    "stream",
]
