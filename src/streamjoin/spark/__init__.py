"""Window joins over streaming and batch DataFrames of Spark."""

from streamjoin.spark.join.metrics import join_metrics
from streamjoin.spark.state.manifest import StateError
from streamjoin.spark.window_join import in_time_order, window_join

__all__ = ["StateError", "in_time_order", "join_metrics", "window_join"]
