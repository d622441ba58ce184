"""Builds small batches of result rows. A page is memory for some hundred rows in the form of one large batch; the rows
of a poll are gathered into its next free places by one kernel, and are a slice of that batch.

Making an Arrow column takes longer than filling it with a few values; a page does it once for all its rows. A result
row that is kept keeps its whole page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.engine.rows import Field, HeldRows
from streamjoin.kernels.gather import gather_rows
from streamjoin.semantics.spec import SIDES

PAGE_BYTES = 1 << 14
FEWEST_ROWS, MOST_ROWS = 32, 512  # of a page
MOST_ON_PAGE = 4  # batches of more than a part of a page, of which this many make one, are built on their own


class Page(NamedTuple):
    """Memory for rows, the same as one batch, and how many of its places are taken."""

    memory: np.ndarray
    batch: pa.RecordBatch
    taken: int


class ResultPages:
    """The pages of a join whose result rows have plain columns only. Threads may share it: a thread that builds rows
    has a page to itself."""

    def __init__(self, schema: pa.Schema, fields: Mapping[str, Sequence[Field]], places: Sequence[int]):
        """`fields`: by side, the columns that are gathered, all of them plain. `places`: the number of each column of
        the schema among these."""
        self._schema = schema
        self._fields, self._of_schema = fields, places
        widths = [f.dtype.itemsize for side in SIDES for f in fields[side] if f.dtype is not None]
        self.rows = min(max(FEWEST_ROWS, PAGE_BYTES // sum(widths)), MOST_ROWS)
        self.most = self.rows // MOST_ON_PAGE  # rows of a batch
        begins = np.cumsum([0, *(-(-self.rows * width // 64) * 64 for width in widths)])
        self._widths, self._begins, self._bytes = np.array(widths), begins[:-1], int(begins[-1])
        self._left_columns = len(fields["left"])
        self._pages: list[Page] = []  # pages that no thread uses
        self._places: dict[tuple[tuple[str, ...], tuple[str, ...]], np.ndarray] = {}

    def batch(self, ids: Mapping[str, np.ndarray], views: Mapping[str, HeldRows]) -> pa.RecordBatch | None:
        """The rows of pairs of ids; None if they are too many, or not all columns are held by row number."""
        left, right, count = views["left"].memory, views["right"].memory, len(ids["left"])
        if left is None or right is None or not 0 < count <= self.most:
            return None
        places = self._places.get((left.names, right.names))
        if places is None and (places := self._new_places(left.names, right.names)) is None:
            return None
        try:
            page = self._pages.pop()
        except IndexError:
            page = self._new_page()
        if page.taken + count > self.rows:
            page = self._new_page()
        gather_rows(
            *(left.origins, ids["left"], right.origins, ids["right"]),
            *(places, self._left_columns, self._widths, self._begins, page.taken, page.memory),
        )
        self._pages.append(Page(page.memory, page.batch, page.taken + count))
        return page.batch.slice(page.taken, count)

    def _new_places(self, left: tuple[str, ...], right: tuple[str, ...]) -> np.ndarray | None:
        """Where each column that is gathered is among those of its side."""
        names = {"left": left, "right": right}
        if any(f.name not in names[side] for side in SIDES for f in self._fields[side]):
            return None
        places = np.array([names[side].index(f.name) for side in SIDES for f in self._fields[side]])
        return self._places.setdefault((left, right), places)

    def _new_page(self) -> Page:
        memory = np.empty(self._bytes, np.uint8)
        whole = pa.py_buffer(memory)
        sizes = (self._widths * self.rows).tolist()
        parts = [whole.slice(*part) for part in zip(self._begins.tolist(), sizes, strict=True)]
        columns = [
            pa.Array.from_buffers(kind, self.rows, [None, parts[at]])
            for kind, at in zip(self._schema.types, self._of_schema, strict=True)
        ]
        return Page(memory, pa.RecordBatch.from_arrays(columns, schema=self._schema), 0)


def make_pages(
    schema: pa.Schema, fields: Mapping[str, Sequence[Field]], places: Sequence[int]
) -> ResultPages | None:
    """Pages for result rows, if all columns are plain and held in the result's types; see `ResultPages`."""
    gathered = [f for side in SIDES for f in fields[side]]
    plain = (
        all(f.dtype is not None for f in gathered) and [gathered[at].type for at in places] == schema.types
    )
    return ResultPages(schema, fields, places) if plain else None
