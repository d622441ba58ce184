"""Serves the page of a join, from a thread of its own.

The thread takes a snapshot a second, which all requests share: more readers cost the join nothing more. A page is
read-only and made for this machine (page/guard.py). It loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from types import TracebackType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamjoin.page.guard import Guard, own_hosts
from streamjoin.page.history import History
from streamjoin.page.metrics import Metrics
from streamjoin.page.model import Snapshot, View
from streamjoin.plan.drawing import plan_drawing, tall_drawing
from streamjoin.semantics.errors import InputError, StreamJoinError

EVERY = 1.0  # seconds between two snapshots
READERS = 64  # connections at once
CLOSING_SECONDS = 5.0  # seconds that `close` waits for the thread
METRICS_KIND = "text/plain; version=0.0.4"
STATIC = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/mark.svg": ("mark.svg", "image/svg+xml"),
}


class JoinPage:
    """The page of a running join, at `url`. It ends with `close`, and with the join."""

    def __init__(self, view: View, host: str, port: int):
        self._socket = listening(host, port)
        self._view, self._history = view, History()
        self._snapshot: Snapshot | None = view.snapshot()
        self._metrics = Metrics(view, lambda: self._snapshot)
        address, self.port = self._socket.getsockname()[:2]
        shown = "localhost" if address in ("0.0.0.0", "::") else address
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/"
        self._server = uvicorn.Server(_config(Guard(self._app(), own_hosts(host, address))))
        self._is_copy = False
        self._thread = threading.Thread(target=self._run, name="streamjoin-page", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return not self._is_copy and not self._server.should_exit

    def close(self) -> None:
        """Stop listening and end the thread. Closing twice is harmless."""
        self.stop()
        if not self._is_copy and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def stop(self) -> None:
        """As `close`, without waiting for the thread."""
        self._server.should_exit = True

    def mark_as_copy(self) -> None:
        """This process is a fork of the one that serves the page: it has no thread, and closes the port."""
        self._is_copy = True
        self._socket.close()

    def __enter__(self) -> JoinPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Page {self.url if self.is_open else 'closed'}>"

    # In the thread

    def _run(self) -> None:
        try:
            with self._socket:
                asyncio.run(self._serve())
        finally:
            self.stop()
            self._view.close()

    async def _serve(self) -> None:
        looking = asyncio.create_task(self._look())
        await self._server.serve([self._socket])
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking

    async def _look(self) -> None:
        """Take a snapshot again and again, until the join is gone."""
        while self.is_open:
            try:
                self._snapshot = self._view.snapshot()
            except Exception:  # the page shows the last figures until the next try
                logging.getLogger("streamjoin").warning("the page could not look at the join", exc_info=True)
            if self._snapshot is None:
                return self.stop()
            self._history.add(self._snapshot)
            await asyncio.sleep(EVERY)

    # What it answers

    def _app(self) -> Starlette:
        answers: dict[str, tuple[Callable[[], bytes], str]] = {
            path: (partial(static, name), kind) for path, (name, kind) in STATIC.items()
        }
        answers |= {
            "/now.json": (self._now, "application/json"),
            "/plan.svg": (partial(self._drawing, plan_drawing), "image/svg+xml"),
            "/plan-tall.svg": (partial(self._drawing, tall_drawing), "image/svg+xml"),
            "/metrics": (self._metrics.text, METRICS_KIND),
        }
        return Starlette(routes=[Route(path, endpoint(*answer)) for path, answer in answers.items()])

    def _now(self) -> bytes:
        """Everything that the page shows, except for the picture of the plan."""
        figures = None if self._snapshot is None else asdict(self._snapshot)
        history = self._history
        return json.dumps(
            {
                "name": self._view.name,
                "engine": self._view.engine,
                "plan": self._view.plan(),
                "figures": figures,
                "rates": history.rates(),
                "loads": history.loads(),
                "lines": history.lines(),
            },
            allow_nan=False,
        ).encode()

    def _drawing(self, draw: Callable[[Mapping[str, Any]], str]) -> bytes:
        plan = self._view.plan()
        return b"" if plan is None else draw(plan).encode()


def endpoint(make: Callable[[], bytes], kind: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with what `make` returns. It is a coroutine: others would run in further threads."""

    async def answer(request: Request) -> Response:
        return Response(make(), media_type=kind)

    return answer


def static(name: str) -> bytes:
    return (files("streamjoin.page") / "static" / name).read_bytes()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; an error if that is impossible."""
    if not isinstance(host, str) or not host:
        raise InputError(
            f"host is {host!r}: give an address such as '127.0.0.1', or '0.0.0.0' for all of them",
            field="host",
            given=host,
            allowed="an address such as '127.0.0.1'",
        )
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise InputError(
            f"port is {port!r}; allowed: 0 (a free one) to 65535",
            field="port",
            given=port,
            allowed="0 (a free one) to 65535",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a page was there a moment ago
            opened.bind(address)
            opened.listen()
        except OSError:
            opened.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise StreamJoinError(
            f"the page cannot be served at {host}:{port}: {reason}. Give another host or port, or port 0 for "
            "a free one",
            field="host",
            given=f"{host}:{port}",
            allowed="an address of this machine and a free port",
        ) from None
    return opened


def _config(app: Guard) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=READERS,
        timeout_graceful_shutdown=1,
    )
    config.access_log = (
        False  # as an argument it would silence the access log of other servers of this process
    )
    return config
