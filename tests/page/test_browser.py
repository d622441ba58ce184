"""The page in a real browser, without a screen: it shows the right figures while a join runs, at every width."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

SOON = 30.0  # seconds: only a failure waits so long
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32(), "name": pa.string()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", "10 seconds", "ts", "ts")
MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium was found: scripts/chromium.sh installs it, or set CHROMIUM to one")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path)
        yield opened
        opened.close()


def rows(first: int, count: int) -> pa.RecordBatch:
    ts = pa.array([1000 * at for at in range(first, first + count)], pa.timestamp("us", "UTC"))
    columns = [ts, pa.array(range(first, first + count), pa.int32()), pa.array([MARKUP] * count)]
    return pa.record_batch(columns, schema=SCHEMA)


def number(tab: Any, element: str) -> int:
    return int(tab.inner_text(element).replace(",", ""))


def eventually(tab: Any, holds: Callable[[], bool]) -> None:
    """Wait in Python: the page's policy forbids code from text, so that the browser cannot be given a condition."""
    until = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        tab.wait_for_timeout(100)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_page_shows_a_running_join(browser, width, scheme):
    problems: list[str] = []
    stop = threading.Event()
    with sj.open_join(SPEC, topology="three_step", workers=1) as join, join.serve_page() as page:

        def run() -> None:
            at = 0
            while not stop.wait(0.02):
                for side in ("left", "right"):
                    join.push(side, rows(at, 10))
                join.poll()
                at += 10

        pushing = threading.Thread(target=run)
        pushing.start()
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        try:
            tab = context.new_page()
            tab.on("console", lambda message: problems.append(message.text))
            tab.on("pageerror", lambda error: problems.append(str(error)))
            asked: list[str] = []
            tab.on("request", lambda request: asked.append(request.url))
            tab.goto(page.url)
            tab.wait_for_selector("#matches")
            first = number(tab, "#matches")
            eventually(tab, lambda: number(tab, "#matches") > first and number(tab, "#rate-rows") > 0)
            stop.set()
            pushing.join()
            stats = join.stats()
            eventually(tab, lambda: number(tab, "#matches") == stats.matches)
            for side in ("left", "right"):
                card = f".side[data-side={side}]"
                assert number(tab, f"{card} [data-figure=rows]") == getattr(stats, f"{side}_tuples")
                assert number(tab, f"{card} [data-figure=held]") == getattr(stats, f"{side}_window")
            assert tab.inner_text("#state-text") == "running"
            assert tab.locator("#picture svg").count() == 1 and "left.x = right.x" in tab.inner_text("#on")
            assert tab.evaluate("(p => p.scrollWidth <= p.clientWidth)(document.getElementById('picture'))")
            assert tab.locator("#rows tr").count() == 20 and tab.locator("#workers .bar").count() == 1
            assert tab.locator("#durations .bar").count() == 4
            cell = tab.inner_text("#rows tr:first-child td:nth-child(3)")
            assert cell.startswith("<img src=x") and tab.title() == "join · streamjoin"
            assert tab.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
            assert {url.removeprefix(page.url).split("/")[0] for url in asked} <= {
                *(
                    "",
                    "page.css",
                    "page.js",
                    "mark.svg",
                    "now.json",
                    "plan-tall.svg" if width < 700 else "plan.svg",
                ),
            }
            assert problems == []
            page.close()
            tab.wait_for_selector("[data-state=gone]")
        finally:
            stop.set()
            pushing.join()
            context.close()
