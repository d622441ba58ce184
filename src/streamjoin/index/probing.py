"""The only way to probe: a window finds pairs, then the part of the predicate that it leaves open is checked on the
pairs' rows.

`three_step`, the nodes of the threaded topologies and the Spark worker all probe through this module. A window yields
pairs in stretches, so that a caller can stop between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.evaluate import Filter
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import Team, WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.expressions import Column, Expr
from streamjoin.semantics.spec import OTHER, SIDES

# Fetches columns of a side's rows by id.
Fetch = Callable[[str, tuple[Column, ...], np.ndarray], dict[Column, ColumnData]]
# Decides where to cut pairs, so that only few rows are fetched at a time: gets ids by side and the columns to read.
Cut = Callable[[Mapping[str, np.ndarray], Mapping[str, tuple[Column, ...]]], Iterable[slice]]
Residuals = Mapping[str, Expr | None]  # the condition that a window leaves open, by side


def filters_of(residuals: Residuals) -> dict[str, Filter | None]:
    """The compiled form of the residual conditions."""
    return {side: None if condition is None else Filter(condition) for side, condition in residuals.items()}


class Prober:
    """Probes windows, and checks each window's residual condition on the rows of the pairs that it finds."""

    def __init__(self, filters: Mapping[str, Filter | None], fetch: Fetch, cut: Cut | None = None):
        """Without `cut`, all pairs of a stretch are checked together."""
        self._filters, self._fetch, self._cut = filters, fetch, cut

    def has_residual(self, stored: str) -> bool:
        """Whether the window of this side leaves a condition open."""
        return self._filters[stored] is not None

    def probe(
        self,
        window: WindowIndex,
        side: str,
        probes: ProbingTuples,
        reach: Reach,
        pairs: PairBuffer,
        team: Team | None = None,
    ) -> Iterator[int]:
        """As `WindowIndex.probe`, for probes of `side`; keeps only pairs that satisfy the whole predicate. Without a
        team, the window chooses one."""
        if team is None:
            stretches = window.probe(probes, reach, pairs)
        else:
            stretches = window.probe(probes, reach, pairs, team)
        if self._filters[OTHER[side]] is None:
            return stretches
        return self.checked(stretches, window.ids, side, probes.id, pairs)

    def checked(
        self,
        stretches: Iterator[int],
        ids_at: Callable[[np.ndarray], np.ndarray],
        side: str,
        probe_ids: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        """The same stretches of pairs, without those for which the residual condition is not true. `ids_at` maps
        positions in the probed window to row ids."""
        residual = self._filters[OTHER[side]]
        if residual is None:
            return stretches
        return self._checked(stretches, residual, ids_at, side, probe_ids, pairs)

    def _checked(
        self,
        stretches: Iterator[int],
        residual: Filter,
        ids_at: Callable[[np.ndarray], np.ndarray],
        side: str,
        probe_ids: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        read = {each: tuple(c for c in residual.columns if c.side == each) for each in SIDES}
        for before in stretches:
            if pairs.count > before:
                fresh = slice(before, pairs.count)
                ids = {side: probe_ids[pairs.probe[fresh]], OTHER[side]: ids_at(pairs.pos[fresh])}
                pairs.keep(before, self._holds(residual, read, ids))
            yield before

    def _holds(
        self, residual: Filter, read: Mapping[str, tuple[Column, ...]], ids: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Whether the condition is true, for each pair of rows."""
        if self._cut is None:
            return self._evaluated(residual, read, ids)
        found = [
            self._evaluated(residual, read, {side: ids[side][piece] for side in SIDES})
            for piece in self._cut(ids, read)
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _evaluated(
        self, residual: Filter, read: Mapping[str, tuple[Column, ...]], ids: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        data: dict[Column, ColumnData] = {}
        for side in SIDES:
            data |= self._fetch(side, read[side], ids[side])
        return residual(data, len(ids["left"]))
