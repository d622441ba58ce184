"""The names of the metrics: those of the reference are those that a join has, and the dashboard uses no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from streamjoin.page.metrics import Metrics
from streamjoin.page.model import SideFigures, Snapshot, WorkerFigures, durations_of

ROOT = Path(__file__).parents[2]
PART = r"_(bucket|sum|count)$"  # of a histogram


class FullView:
    """A view of a join for which everything is known."""

    name, engine = "a", "b"

    def plan(self) -> dict[str, str]:
        return {"how": "inner", "topology": "three_step"}

    def snapshot(self) -> None:
        return None

    def close(self) -> None:
        pass


def samples(of: str) -> dict[str, set[str]]:
    """The labels of all metrics of a join whose durations are of this kind, by name."""
    times = durations_of(of, (0.5, 1.0), (3, 4, 5), 7.0, lambda q: q)
    side = SideFigures(1, 2, 3, "now", 4.0, 5.0)
    further = {"malformed": 1.0, "buffered": 2.0, "behind": 3.0}
    worker = WorkerFigures("0", 1, {"kernel": 1.0}, 2)
    snapshot = Snapshot(1.0, "running", 1, {"left": side}, 1, [worker], times, further, [], [])
    text = Metrics(FullView(), lambda: snapshot).text().decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(re.sub(PART, "", sample.name), set()).update(set(sample.labels) - {"le"})
    return found


def all_samples() -> dict[str, set[str]]:
    return samples("results") | samples("micro-batches")


def test_the_reference_lists_all_metrics_with_their_labels():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(streamjoin_\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows} == all_samples()


def test_the_counts_of_a_histogram_add_up():
    times = durations_of("results", (0.5, 1.0), (3, 4, 5), 7.0, lambda q: q)
    snapshot = Snapshot(1.0, "running", 0, {}, 0, [], times, {}, [], [])
    text = Metrics(FullView(), lambda: snapshot).text().decode()
    buckets = dict(re.findall(r'^streamjoin_result_seconds_bucket{le="(.*)"} (.*)$', text, re.MULTILINE))
    assert buckets == {"0.5": "3.0", "1": "7.0", "+Inf": "12.0"}
    assert "streamjoin_result_seconds_sum 7.0" in text


def test_the_dashboard_uses_metrics_that_exist_and_panels_that_do_not_overlap():
    board = json.loads((ROOT / "examples" / "grafana.json").read_text())
    names: set[str] = set()
    places: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places and place["x"] + place["w"] <= 24
        places |= cells
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")
            names |= {re.sub(PART, "", name) for name in re.findall(r"streamjoin_\w+", target["expr"])}
    assert names | {"streamjoin_join_info"} == set(all_samples())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
