"""Which requests a page answers. A page shows the rows of a join, so it answers only those who address it as itself.

A web page from elsewhere cannot read from this one: browsers keep origins apart, and a name of the attacker's that
resolves to this machine (DNS rebinding) is not among the hosts that are answered.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Answers what `is_own` and `METHODS` allow by `app`, and gives every answer the headers `HEADERS`."""

    def __init__(self, app: ASGIApp, is_own: Callable[[str], bool]):
        self._app, self._is_own = app, is_own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._answer(scope)(scope, receive, send_guarded)

    def _answer(self, scope: Scope) -> ASGIApp:
        if not self._is_own(Headers(scope=scope).get("host", "")):
            return PlainTextResponse("this page does not answer for that host\n", 421)
        if scope["method"] not in METHODS:
            text = "this page only shows: GET and HEAD are allowed\n"
            return PlainTextResponse(text, 405, {"Allow": ", ".join(METHODS)})
        return self._app


def is_loopback(host: str) -> bool:
    """Whether an address, as text, is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def own_hosts(named: str, address: str) -> Callable[[str], bool]:
    """A function that says whether a Host header names a page. `named`: the host it was opened for; `address`: the one
    it listens on. A page on loopback goes by loopback addresses, any other by every address and this machine's names,
    as an attacker's page has a name and not an address."""
    names = {named.lower(), "localhost"}
    if not is_loopback(address):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def is_own(header: str) -> bool:
        host = host_of(header)
        if host in names or is_loopback(host):
            return True
        try:
            return not is_loopback(address) and bool(ip_address(host))
        except ValueError:
            return False

    return is_own


def host_of(header: str) -> str:
    """The host of a Host header, without its port and the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
