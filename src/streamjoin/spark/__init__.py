"""Window joins over streaming and batch DataFrames of Spark."""

from streamjoin.spark.packages import TO_BUILD, require_packages

require_packages(TO_BUILD, "streamjoin.spark joins Spark's DataFrames")

from streamjoin.spark.checkpoint.held import JoinState, SideState, WorkerState, read_state  # noqa: E402
from streamjoin.spark.checkpoint.rescale import Rescaled, rescale  # noqa: E402
from streamjoin.spark.explaining import explain_joins as explain  # noqa: E402
from streamjoin.spark.hot_keys import HotKeySample  # noqa: E402  # after the check, which says what to install
from streamjoin.spark.join.metrics import join_metrics  # noqa: E402
from streamjoin.spark.serving import serve_page  # noqa: E402
from streamjoin.spark.sessions import SessionError, configure, session  # noqa: E402
from streamjoin.spark.state.manifest import StateError  # noqa: E402
from streamjoin.spark.window_join import in_time_order, window_join  # noqa: E402

__all__ = [
    "HotKeySample",
    "JoinState",
    "Rescaled",
    "SessionError",
    "SideState",
    "StateError",
    "WorkerState",
    "configure",
    "explain",
    "in_time_order",
    "join_metrics",
    "read_state",
    "rescale",
    "serve_page",
    "session",
    "window_join",
]
