"""Rates and loads follow from the totals of snapshots."""

from __future__ import annotations

from streamjoin.page.history import POINTS, History
from streamjoin.page.model import SideFigures, Snapshot, WorkerFigures, durations_of


def snapshot(at: float, rows: int, matches: int, compared: list[int]) -> Snapshot:
    sides = {"left": SideFigures(rows, 0, 0, ""), "right": SideFigures(rows, 0, 0, "")}
    workers = [WorkerFigures(str(number), count) for number, count in enumerate(compared)]
    times = durations_of("results", (), (0,), 0.0, lambda q: float("nan"))
    return Snapshot(at, "running", matches, sides, 0, workers, times, {}, [], [])


def test_rates_are_those_of_the_last_seconds():
    history = History()
    assert history.rates() == {"rows": 0, "matches": 0, "comparisons": 0} and history.loads() == {}
    history.add(snapshot(100, 50, 7, [1, 2]))
    assert history.rates() == {"rows": 0, "matches": 0, "comparisons": 0}
    for second in range(
        1, 21
    ):  # 10 rows a side and 3 matches a second; the second worker does three times as much
        history.add(snapshot(100 + second, 50 + 10 * second, 7 + 3 * second, [1 + second, 2 + 3 * second]))
    assert history.rates() == {"rows": 20, "matches": 3, "comparisons": 4}
    assert history.loads() == {"0": 1 / 3, "1": 1}
    for second in range(21, 30):  # nothing comes any more
        history.add(snapshot(100 + second, 250, 67, [21, 62]))
    assert history.rates() == {"rows": 0, "matches": 0, "comparisons": 0}
    assert history.loads() == {"0": 0, "1": 0}


def test_figures_that_are_no_news_change_nothing():
    history = History()
    history.add(snapshot(10, 0, 0, []))
    history.add(snapshot(20, 100, 50, []))
    before = history.rates(), history.lines()
    history.add(snapshot(20, 999, 999, []))
    assert (history.rates(), history.lines()) == before
    assert history.lines() == {"at": [20], "rows": [20], "matches": [5]}


def test_the_history_is_bounded():
    history = History()
    for at in range(3 * POINTS):
        history.add(snapshot(at, at, at, []))
    assert len(history.lines()["at"]) == POINTS - 1
