"""The last result rows of a join, for its page."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from streamjoin.page.model import LAST_ROWS, rows_as_text


class RecentRows:
    """The last result rows of a join. Polling threads note batches; the page's thread turns them into text soon, as a
    batch that is kept keeps its memory."""

    def __init__(self, most: int = LAST_ROWS):
        self._most = most
        self._fresh: deque[pa.RecordBatch] = deque(maxlen=most)
        self._texts: deque[Sequence[str | None]] = deque(maxlen=most)

    def note(self, batches: Sequence[pa.RecordBatch]) -> None:
        """These were polled."""
        for batch in batches:
            if batch.num_rows >= self._most:
                self._fresh.clear()  # so at most one large batch is kept
            if batch.num_rows:
                self._fresh.append(batch)

    def texts(self) -> list[Sequence[str | None]]:
        """The rows as text, the newest last."""
        with suppress(IndexError):
            while True:
                self._texts.extend(rows_as_text(self._fresh.popleft(), self._most))
        return list(self._texts)
