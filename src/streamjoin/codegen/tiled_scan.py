"""The scan for conditions that are too long to compile. It evaluates pairs of stored and probing tuples in tiles.

Parts that read one side only are evaluated once per tuple, before the first tile; the rest once per pair. See
`columnwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from streamjoin.codegen.blocks import BUDGET
from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.columnwise import TILE, ColumnWise
from streamjoin.codegen.vec import Limbs, Tile, Vec
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, columns
from streamjoin.semantics.spec import OTHER

assert TILE <= MIN_SCAN_ROOM
NO_TEXT = np.zeros(1, np.uint8)


class TiledScan:
    """Scans a window of `stored` for a condition over numbers. It follows the protocol of `blocks.block_scan`, except
    that `bind` takes the arrays, once."""

    def __init__(self, condition: Expr, stored: str):
        self.columns = columns(condition)
        self._sides = (stored, OTHER[stored])
        parts: dict[str, dict[int, tuple[Expr, Column]]] = {side: {} for side in self._sides}
        self._pairwise = ColumnWise([_with_columns(condition, parts, {})])
        self._outcomes = {side: [column for _, column in found.values()] for side, found in parts.items()}
        self._one_sided = {
            side: ColumnWise([expr for expr, _ in found.values()]) for side, found in parts.items()
        }

    def rehearse(self) -> None:
        """Compile the kernels that the condition may call."""
        for each in (self._pairwise, *self._one_sided.values()):
            each.rehearse()

    def bind(self, data: Mapping[Column, ColumnData]) -> Callable[..., int]:
        """`scan(start, stop, cursor, out_probe, out_pos, count) -> count` for columns of window and probes."""
        made: list[dict[Column, Vec]] = []

        def scan(
            start: np.ndarray,
            stop: np.ndarray,
            cursor: np.ndarray,
            out_probe: np.ndarray,
            out_pos: np.ndarray,
            count: int,
        ) -> int:
            if not made:
                made.extend(self._evaluated_once(side, data) for side in self._sides)
            probe, at, budget = int(cursor[0]), int(cursor[1]), int(cursor[BUDGET])
            while probe < len(start):
                if len(out_probe) - count < MIN_SCAN_ROOM or budget <= 0:
                    cursor[0], cursor[1], cursor[BUDGET] = probe, at, budget
                    return count
                probes, positions, (probe, at) = _next_pairs(start, stop, probe, at, min(budget, TILE))
                budget -= len(probes)
                hits = self._hits(made, positions, probes)
                fresh = slice(count, count + len(hits))
                out_probe[fresh], out_pos[fresh] = probes[hits], positions[hits]
                count += len(hits)
            cursor[0], cursor[BUDGET] = DONE, budget
            return count

        return scan

    def _evaluated_once(self, side: str, data: Mapping[Column, ColumnData]) -> dict[Column, Vec]:
        """The parts of the condition that read one side, for all its tuples."""
        used = {column: each for column, each in data.items() if column.side == side}
        count = max(map(len, used.values()), default=0)
        columnwise, outcomes = self._one_sided[side], self._outcomes[side]
        pieces = [(tile, columnwise(tile)) for _, tile in columnwise.tiles(used, count)]
        return {
            column: _joined([(tile, values[number]) for tile, values in pieces])
            for number, column in enumerate(outcomes)
        }

    def _hits(
        self, made: Sequence[Mapping[Column, Vec]], positions: np.ndarray, probes: np.ndarray
    ) -> np.ndarray:
        """The numbers of the pairs for which the condition is true."""
        if not len(probes):
            return np.empty(0, np.int64)
        inputs = {
            column: _taken(value, rows)
            for values, rows in zip(made, (positions, probes), strict=True)
            for column, value in values.items()
        }
        true = self._pairwise(Tile(len(probes), inputs, NO_TEXT))[0].data
        return np.flatnonzero(np.broadcast_to(true, (len(probes),)))


def _with_columns(
    expr: Expr, parts: dict[str, dict[int, tuple[Expr, Column]]], known: dict[int, Expr]
) -> Expr:
    """`expr` with a column for each largest part that reads one side; these go to `parts`."""
    if id(expr) in known or isinstance(expr, Literal):
        return known.get(id(expr), expr)
    if len(expr.reads) == 1:
        (side,) = expr.reads
        column = Column(side, f"<part{len(parts[side])}>", expr.type)
        parts[side][id(expr)] = (expr, column)
        known[id(expr)] = column
    else:
        assert isinstance(expr, Call)
        known[id(expr)] = Call(
            expr.op, tuple(_with_columns(arg, parts, known) for arg in expr.args), expr.type
        )
    return known[id(expr)]


def _next_pairs(
    start: np.ndarray, stop: np.ndarray, probe: int, at: int, most: int
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """The next `most` pairs from position `at` of a probe on, as probes and positions, and where the following pairs
    begin."""
    probes, ranges = [], []
    while probe < len(start) and most:
        first, last = max(at, int(start[probe])), int(stop[probe])
        size = max(0, min(last - first, most))
        if size:
            probes.append(np.full(size, probe))
            ranges.append(np.arange(first, first + size))
            most -= size
        if first + size < last:
            at = first + size
            break
        probe, at = probe + 1, 0
    if not probes:
        return np.empty(0, np.int64), np.empty(0, np.int64), (probe, at)
    return np.concatenate(probes), np.concatenate(ranges), (probe, at)


def _joined(pieces: Sequence[tuple[Tile, Vec]]) -> Vec:
    """Concatenate the values of several tiles."""
    datas = [value.data for _, value in pieces]
    null = None
    if any(value.null is not None for _, value in pieces):
        null = _whole(
            [(tile, np.False_ if value.null is None else value.null) for tile, value in pieces], np.bool_
        )
    if not pieces:
        return Vec(np.empty(0, np.int64))
    if isinstance(datas[0], Limbs):
        limbs = [[(tile, value.data[limb]) for tile, value in pieces] for limb in (0, 1)]
        return Vec(Limbs(_whole(limbs[0], np.uint64), _whole(limbs[1], np.int64)), null)
    return Vec(_whole([(tile, value.data) for tile, value in pieces], np.asarray(datas[0]).dtype), null)


def _whole(pieces: Sequence[tuple[Tile, object]], dtype: np.dtype | type) -> np.ndarray:
    return np.concatenate([tile.array(data, dtype) for tile, data in pieces])


def _taken(value: Vec, rows: np.ndarray) -> Vec:
    null = None if value.null is None else value.null[rows]
    if isinstance(value.data, Limbs):
        return Vec(Limbs(value.data.low[rows], value.data.high[rows]), null)
    return Vec(value.data[rows], null)
