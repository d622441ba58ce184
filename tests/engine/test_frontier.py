"""What can still come from many sources: the same as by asking all of them, whatever they do."""

from __future__ import annotations

import math
import random
from typing import Any, cast

import pytest

from streamjoin.engine.sources import Source, Sources
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
        for each in SIDES:
            by_rank = sorted(known[each], key=lambda s: int(sources.ranks[s.side][s.number]))
            assert [s.name for s in by_rank] == sorted(s.name for s in known[each])


class Counted(str):
    """A name that counts how often names are compared."""

    compared = 0

    def __lt__(self, other: str) -> bool:
        Counted.compared += 1
        return str.__lt__(self, other)


@pytest.mark.parametrize("every", [1, 100, 3_000], ids=["after each", "after some", "after all"])
def test_opening_sources_costs_few_comparisons_each(every):
    """However often the frontier is read in between, n sources cost O(n log n) comparisons of names."""
    count = 3_000
    names = [f"{number:05}" for number in range(count)]
    random.Random(1).shuffle(names)
    sources, Counted.compared = Sources(), 0
    for number, name in enumerate(names):
        sources.add(Source(cast(Any, None), "left", Counted(name), None))
        if (number + 1) % every == 0:
            sources.frontier()
    assert sources.ranks["left"].tolist() == [int(name) for name in names]
    assert Counted.compared <= 4 * count * math.log2(count)


def test_opening_sources_ranks_nothing_before_it_is_asked(monkeypatch):
    sources = Sources()
    monkeypatch.setattr(Sources, "_rank", lambda *_: pytest.fail("ranked"))
    for number in range(100):
        sources.add(Source(cast(Any, None), "left", f"s{number}", None))
