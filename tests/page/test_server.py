"""The page of a join over HTTP: its figures are those of the join, it is read-only and local, and it ends."""

from __future__ import annotations

import gc
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import streamjoin as sj
from streamjoin.page.guard import host_of, own_hosts

SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32(), "name": pa.string()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", "10 seconds", "ts", "ts", lateness="1 second")
SECOND = 1_000_000
SOON = 20.0  # seconds: only a failure waits so long


def rows(first: int, count: int, name: str = "a") -> pa.RecordBatch:
    """A row a millisecond, with keys of their own."""
    ts = pa.array([SECOND + 1000 * at for at in range(first, first + count)], pa.timestamp("us", "UTC"))
    columns = [ts, pa.array(range(first, first + count), pa.int32()), pa.array([name] * count)]
    return pa.record_batch(columns, schema=SCHEMA)


@pytest.fixture
def join() -> Iterator[sj.Join]:
    with sj.open_join(SPEC, topology="three_step", workers=1) as opened:
        yield opened


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SOON) as answer:
        return bytes(answer.read())


def now(page: Any) -> dict[str, Any]:
    return dict(json.loads(get(f"{page.url}now.json")))


def request(page: Any, method: str, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=SOON)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=SOON).close()
    except OSError:
        return True
    return False


def test_the_figures_are_those_of_the_join(join):
    join.push("left", rows(0, 100))
    join.push("right", rows(50, 100))
    with join.serve_page() as page:
        first = now(page)
        assert first["engine"] == "embedded" and first["plan"] == json.loads(json.dumps(join.plan.to_dict()))
        assert (first["figures"]["matches"], first["figures"]["further"]["buffered"]) == (50, 50)
        join.push("left", rows(2000, 100))
        late = rows(0, 3)
        join.push("left", late)
        assert join.poll_table().num_rows == 50
        stats = join.stats()
        eventually(lambda: now(page)["figures"]["sides"]["left"]["rows"] == stats.left_tuples)
        figures = now(page)["figures"]
    for side in ("left", "right"):
        shown = figures["sides"][side]
        assert shown["rows"] == getattr(stats, f"{side}_tuples")
        assert shown["late"] == getattr(stats, f"{side}_late")
        assert shown["held"] == getattr(stats, f"{side}_window")
        assert shown["watermark_seconds"] == getattr(stats, f"{side}_watermark") / SECOND
    assert figures["sides"]["left"]["late"] == 3
    assert figures["sides"]["left"]["watermark"] == "1970-01-01 00:00:02.099+00:00"
    assert figures["matches"] == stats.matches == 50 and figures["state_bytes"] == stats.window_bytes
    assert [worker["comparisons"] for worker in figures["workers"]] == list(stats.worker_comparisons)
    assert figures["durations"]["quantiles"]["99 %"] == stats.latency.quantile(0.99)
    assert figures["columns"] == join.schema.names
    assert len(figures["rows"]) == 20
    assert figures["rows"][-1] == ["1970-01-01 00:00:01.099000Z", "99", "a"] * 2


def test_metrics_parse_and_equal_the_statistics(join):
    join.push("left", rows(0, 10))
    join.push("right", rows(0, 7))
    with join.serve_page() as page:
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(get(f"{page.url}metrics").decode())
            for sample in family.samples
        }
    assert found["streamjoin_rows_total", "left"] == 10 and found["streamjoin_rows_total", "right"] == 7
    assert found["streamjoin_matches_total",] == 7 and found["streamjoin_buffered",] == 7
    assert found["streamjoin_result_seconds_count",] == 7 == found["streamjoin_result_seconds_bucket", "+Inf"]
    assert found["streamjoin_result_seconds_sum",] == pytest.approx(join.stats().latency.seconds)
    assert found["streamjoin_watermark_seconds", "left"] == pytest.approx(0.009)
    assert found["streamjoin_comparisons_total", "0"] == join.stats().comparisons
    assert found["streamjoin_running",] == 1


def test_the_page_is_served_with_its_parts_and_nothing_from_elsewhere(join):
    with join.serve_page() as page:
        for path, kind in (("", "text/html"), ("page.css", "text/css"), ("page.js", "text/javascript")):
            answer = request(page, "GET", f"/{path}")
            assert answer.status == 200 and answer.headers["Content-Type"].startswith(kind)
            assert b"http:" not in answer.body.replace(b"http://www.w3.org/2000/svg", b"")  # type: ignore[attr-defined]
            assert b"https:" not in answer.body  # type: ignore[attr-defined]
        for picture in ("plan.svg", "plan-tall.svg"):
            assert request(page, "GET", f"/{picture}").body.startswith(b"<svg")  # type: ignore[attr-defined]
        assert request(page, "GET", "/../../etc/passwd").status == 404
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Access-Control-Allow-Origin"] is None


def test_the_page_only_shows(join):
    with join.serve_page() as page:
        assert request(page, "HEAD").status == 200
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            for path in ("/", "/now.json", "/metrics"):
                answer = request(page, method, path)
                assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "10.1.2.3", "[2001:db8::1]:80"]
)
def test_a_request_that_names_another_host_is_refused(join, host):
    with join.serve_page() as page:
        answer = request(page, "GET", "/now.json", Host=host)
        assert answer.status == 421 and b"matches" not in answer.body  # type: ignore[attr-defined]
        assert request(page, "GET", "/now.json", Host=f"localhost:{page.port}").status == 200


def test_names_of_a_page_on_another_address_are_addresses_and_the_names_of_the_host():
    is_own = own_hosts("0.0.0.0", "0.0.0.0")
    for name in ("10.1.2.3:80", "[2001:db8::1]:80", socket.gethostname(), "localhost", "127.0.0.1"):
        assert is_own(name), name
    assert not is_own("evil.example") and not is_own("")
    assert own_hosts("Page.example", "10.1.2.3")("page.example:8080")
    assert host_of("[::1]:80") == "::1" and host_of("a:80") == "a"


def other_address() -> str:
    """An address of this machine that is not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_the_page_listens_on_loopback_only_unless_another_host_is_named(join):
    other = other_address()
    with join.serve_page() as page:
        assert refuses(other, page.port) and not refuses("127.0.0.1", page.port)
    with join.serve_page(host="0.0.0.0") as page:
        assert json.loads(get(f"http://{other}:{page.port}/now.json"))["figures"]["state"] == "running"
        assert page.url == f"http://localhost:{page.port}/"


def page_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "streamjoin-page"]


def test_closing_a_page_ends_its_thread_and_frees_its_port(join):
    page = join.serve_page()
    assert get(page.url) and page_threads() and repr(page) == f"<Page {page.url}>"
    page.close()
    page.close()
    assert page_threads() == [] and refuses("127.0.0.1", page.port) and repr(page) == "<Page closed>"
    join.push("left", rows(0, 1))
    join.push("right", rows(0, 1))
    assert join.poll_table().num_rows == 1
    with join.serve_page(port=page.port) as again:  # the port is free
        assert now(again)["figures"]["matches"] == 1


@pytest.mark.parametrize("end", [sj.Join.close, sj.Join.finish])
def test_a_page_ends_with_its_join(end):
    join = sj.open_join(SPEC)
    page = join.serve_page()
    end(join)
    eventually(lambda: page_threads() == [])
    assert refuses("127.0.0.1", page.port)


def test_a_page_keeps_no_join_alive():
    join = sj.open_join(SPEC)
    page, gone = join.serve_page(), weakref.ref(join)
    get(page.url)
    del join
    gc.collect()
    assert gone() is None
    eventually(lambda: page_threads() == [])


def test_rows_are_kept_only_while_a_page_is_open(join):
    def meet(at: int) -> None:
        join.push("left", rows(at, 1))
        join.push("right", rows(at, 1))
        join.poll()

    meet(1)
    assert join._driver.recent_rows is None
    with join.serve_page() as page:
        meet(2)
        eventually(lambda: now(page)["figures"]["rows"] != [])
        assert [row[1] for row in now(page)["figures"]["rows"]] == ["2"]
    assert join._driver.recent_rows is None


def test_a_join_has_one_page_at_a_time(join):
    with join.serve_page() as page, pytest.raises(sj.StreamJoinError, match=f"a page already, at {page.url}"):
        join.serve_page()
    with join.serve_page():
        pass


def test_a_port_that_is_taken_is_named(join):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            sj.StreamJoinError, match=f"cannot be served at 127.0.0.1:{port}: .*another host or port"
        ):
            join.serve_page(port=port)
    assert join._driver.recent_rows is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": -1}, "port is -1; allowed: 0"),
        ({"port": 65536}, "port is 65536; allowed: 0"),
        ({"port": "80"}, "port is '80'"),
        ({"port": True}, "port is True"),
        ({"host": ""}, "host is ''"),
        ({"host": 7}, "host is 7"),
        ({"host": "no.such.host.invalid"}, "cannot be served at no.such.host.invalid:0"),
    ],
)
def test_a_wrong_place_is_refused(join, given, message):
    with pytest.raises(sj.StreamJoinError, match=message):
        join.serve_page(**given)
    with join.serve_page() as page:  # nothing is half open
        assert now(page)["figures"]["state"] == "running"


def test_without_the_packages_one_sentence_says_what_to_install(join, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    message = (
        "a page needs prometheus-client, which this Python does not have: pip install 'streamjoin\\[page\\]'"
    )
    with pytest.raises(sj.StreamJoinError, match=message):
        join.serve_page()


def test_a_closed_join_has_no_page(join):
    join.close()
    with pytest.raises(sj.ClosedError):
        join.serve_page()


def test_a_long_step_does_not_hold_the_page_up(join, monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    step = join._topology.step

    def slow(most: float) -> Any:
        entered.set()
        assert leave.wait(SOON)
        return step(most)

    join.push("left", rows(0, 1))
    monkeypatch.setattr(join._topology, "step", slow)
    with join.serve_page() as page:
        pushing = threading.Thread(target=join.push, args=("right", rows(0, 1)))
        pushing.start()
        try:
            assert entered.wait(SOON)
            eventually(lambda: now(page)["figures"]["sides"]["right"]["rows"] == 1)
        finally:
            leave.set()
            pushing.join()
        eventually(lambda: now(page)["figures"]["matches"] == 1)


def test_a_failed_join_shows_as_failed(join, monkeypatch):
    def wrong(most: float) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(join._topology, "step", wrong)
    with join.serve_page() as page:
        with pytest.raises(RuntimeError, match="no"):
            join.push("left", rows(0, 1))
        eventually(lambda: now(page)["figures"]["state"] == "failed")


def test_an_ended_side_says_so(join):
    join.push("left", rows(0, 1))
    join.end("left")
    with join.serve_page() as page:
        sides = now(page)["figures"]["sides"]
    assert sides["left"]["watermark"] == "ended" and sides["right"]["watermark"] == ""
    assert join.stats().left_watermark is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_lets_go_of_the_port():
    with sj.open_join(SPEC) as join:
        page = join.serve_page()
        get(page.url)
        child = os.fork()
        if child == 0:
            time.sleep(SOON)
            os._exit(0)
        try:
            page.close()
            assert refuses("127.0.0.1", page.port)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
