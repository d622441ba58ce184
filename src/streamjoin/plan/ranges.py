"""Find the intervals of a predicate that can spread rows by ranges of a key: those of constant width.

`abs(left.x - right.a) <= 10` gives every right row an interval of width 20 on left's key x, and every left row one on
right's key a. An interval whose width depends on the row, or that has only one end, could touch any number of ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.programs import WindowProgram
from streamjoin.semantics.analysis import Analysis
from streamjoin.semantics.spec import SIDES, JoinSpec

# Sample rows have these values, in a different order in each column.
SAMPLED_VALUES = (0, 1, 2, 5, 17, 40, 100)
WIDEST_INTERVAL = 1e300  # a range of several intervals must still have a finite width
ROUNDING_ERROR = 1e-3  # treat widths that differ by less than this part as equal


@dataclass(frozen=True)
class KeyRange:
    """A key of the side that `program` stores. The other side's rows meet intervals of it, all `width` wide."""

    program: WindowProgram
    band: int
    width: float

    def keys(self, batch: pa.RecordBatch) -> np.ndarray:
        """The key of every row as a float, a monotone function of the key; NaN for rows that match nothing."""
        data = {c: to_column_data(batch.column(c.name), c.type) for c in self.program.stored_columns}
        stored = self.program.prepare_stored(data, batch.num_rows)
        keys = self.program.key_of_band(stored, self.band).astype(np.float64)
        assert stored.known is not None
        return np.where(stored.known, keys, np.nan)

    def intervals(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest key that each row of the other side meets; NaN for rows that match nothing."""
        return bounds_of(self.program, self.band, batch)


def bounds_of(program: WindowProgram, band: int, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of a band for each probing row, as floats; the lower one is NaN for rows that match nothing."""
    data = {c: to_column_data(batch.column(c.name), c.type) for c in program.probe_columns}
    probing = program.prepare_probe(data, batch.num_rows)
    lows, highs = (ends.astype(np.float64) for ends in program.bounds_of_band(probing, band))
    return np.where(probing.known, lows, np.nan), highs


def key_ranges(spec: JoinSpec, analysis: Analysis) -> dict[str, KeyRange]:
    """By side, the first of its keys that the other side's rows meet in an interval of constant width."""
    found = {}
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        program = WindowProgram(spec.predicate, analysis.for_window(side), side, indexed=True)
        for band in program.indexable(equality=False) if program.clauses else ():
            width = width_of(program, band, spec.side_schema(other))
            if width is not None:
                found[side] = KeyRange(program, band, width)
                break
    return found


def width_of(program: WindowProgram, band: int, schema: pa.Schema) -> float | None:
    """The width of a band's intervals, judged by sample rows; None unless all are equally wide. A wrong judgement
    costs time, but no result."""
    if len(program.bands_beside(band)) > 1:
        return None
    try:
        batch = sample_rows(schema, [column.name for column in program.probe_columns])
    except pa.ArrowException:  # small numbers cannot be converted to this type
        return None
    lows, highs = bounds_of(program, band, batch)
    with np.errstate(invalid="ignore", over="ignore"):  # half-open intervals have no width
        widths = highs - lows
    even = widths.max() <= WIDEST_INTERVAL and np.ptp(widths) <= ROUNDING_ERROR * widths.max()
    return float(widths.max()) if even and widths.min() > 0 else None


def sample_rows(schema: pa.Schema, names: list[str]) -> pa.RecordBatch:
    """Sample rows with these columns."""
    random = np.random.default_rng(0)  # shuffle each column, or differences of columns look constant
    fields = [schema.field(name) for name in names]
    columns = [pa.array(random.permutation(SAMPLED_VALUES)).cast(field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
