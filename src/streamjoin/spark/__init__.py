"""Window joins over streaming and batch DataFrames of Spark."""

from streamjoin.spark.packages import TO_BUILD, require_packages

require_packages(TO_BUILD, "streamjoin.spark joins Spark's DataFrames")

from streamjoin.spark.hot_keys import HotKeySample  # noqa: E402  # after the check, which says what to install
from streamjoin.spark.join.metrics import join_metrics  # noqa: E402
from streamjoin.spark.sessions import SessionError, configure, session  # noqa: E402
from streamjoin.spark.state.manifest import StateError  # noqa: E402
from streamjoin.spark.window_join import in_time_order, window_join  # noqa: E402

__all__ = [
    "HotKeySample",
    "SessionError",
    "StateError",
    "configure",
    "in_time_order",
    "join_metrics",
    "session",
    "window_join",
]
