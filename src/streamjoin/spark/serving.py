"""The page of a query that a program has started, with its metrics for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryTerminatedEvent
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.page.open import LOOPBACK, open_page
from streamjoin.spark.built import tasks_in
from streamjoin.spark.job.watching import WatchedQuery

if TYPE_CHECKING:
    from streamjoin.page.server import JoinPage


class FollowedQuery(WatchedQuery):
    """One query among those of a session, which a program may have many of."""

    def __init__(self, query: StreamingQuery, joined: DataFrame):
        super().__init__(query.name or str(query.id))
        self._id, self._streams = str(query.id), joined.sparkSession.streams
        self._state = "running"  # it was started before

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.id) == self._id:
            super().onQueryProgress(event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if str(event.id) == self._id:
            super().onQueryIdle(event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.id) == self._id:
            super().onQueryTerminated(event)

    def close(self) -> None:
        self._streams.removeListener(self)


def serve_page(query: StreamingQuery, joined: DataFrame, host: str = LOOPBACK, port: int = 0) -> JoinPage:
    """Serve a page that shows the join of a running query: its plan, rates, watermark, state and workers. `/metrics`
    beside it has the figures for Prometheus.

    `joined`: the DataFrame that the query writes, made by `window_join`; of several joins the plan is that of the
    first, and the figures are those of all. Counts begin when the page opens. Joined rows are not shown. It listens on
    this machine alone unless `host` says otherwise; port 0 is a free one. Needs `pip install 'streamjoin[page]'`.

    Example:
        >>> query = joined.writeStream.option("checkpointLocation", "/data/checkpoint").start()  # doctest: +SKIP
        >>> page = serve_page(query, joined, port=8155)  # doctest: +SKIP
        >>> page.close()  # doctest: +SKIP
    """
    watched = FollowedQuery(query, joined)
    watched.begin(tasks_in(joined)[0])
    page = open_page(watched, host, port)
    joined.sparkSession.streams.addListener(watched)
    return page
