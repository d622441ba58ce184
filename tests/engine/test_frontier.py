"""What can still come from many sources: the same as from looking at all of them, whatever they do."""

from __future__ import annotations

import math
import random
from typing import Any, cast

import pytest

from streamjoin.engine.streams import Source, Sources
from streamjoin.semantics.spec import SIDES


class Looking:
    """The definition: the least watermark of each side, over all open sources, never below what was announced."""

    def __init__(self) -> None:
        self.low: dict[str, float] = dict.fromkeys(SIDES, -math.inf)
        self.bound: tuple[float, int, str] = (-math.inf, 0, "")

    def look(self, sources: dict[str, list[Source]], ended: set[str]) -> None:
        bounds = []
        for number, side in enumerate(SIDES):
            if side in ended:
                self.low[side] = math.inf
                continue
            current = [source for source in sources[side] if not source.closed]
            self.low[side] = max(self.low[side], min([s.watermark for s in current], default=-math.inf))
            marks = [(max(s.watermark, self.low[side]), number, s.name) for s in current]
            bounds.append(min(marks, default=(self.low[side], number, "")))
        self.bound = max(self.bound, min(bounds, default=(math.inf, 0, "")))


@pytest.mark.parametrize("seed", range(100))
def test_the_frontier_is_that_of_looking_at_all_sources(seed):
    draw, sources, looking = random.Random(seed), Sources(), Looking()
    known: dict[str, list[Source]] = {side: [] for side in SIDES}
    lateness = draw.choice([None, 3])
    for _ in range(60):
        side, act = draw.choice(SIDES), draw.random()
        if act < 0.2 and side not in sources.ended:
            name = f"{draw.choice('abcdefgh')}{len(known[side])}"
            known[side].append(sources.add(Source(cast(Any, None), side, name, lateness)))
        elif known[side]:
            source = draw.choice(known[side])
            source.newest = max(source.newest, source.newest + draw.randint(0, 3), draw.randint(0, 9))
            source.promised = max(source.promised, draw.choice([-math.inf, source.newest + 1]))
            source.closed |= act > 0.93
        if act > 0.995:
            sources.end(side)
        frontier = sources.frontier()
        looking.look(known, sources.ended)
        assert dict(frontier.low) == looking.low
        ts, number, name = looking.bound
        first = sources.find(SIDES[number], name)
        rank = -1 if first is None else int(sources.ranks[SIDES[number]][first.number])
        assert frontier.bound == (ts, number, rank)
