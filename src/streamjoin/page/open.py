"""Opens a page, if the packages that it needs are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from streamjoin.page.model import View
from streamjoin.semantics.errors import StreamJoinError

if TYPE_CHECKING:
    from streamjoin.page.server import JoinPage

LOOPBACK = "127.0.0.1"
PAGE_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


def open_page(view: View, host: str = LOOPBACK, port: int = 0) -> JoinPage:
    """Serve a page. Raises before it listens if a package is missing."""
    if missing := [name.replace("_", "-") for name in PAGE_PACKAGES if find_spec(name) is None]:
        raise StreamJoinError(
            f"a page needs {', '.join(missing)}, which this Python does not have: pip install 'streamjoin[page]', or "
            "in a clone pip install '.[page]'"
        )
    from streamjoin.page.server import JoinPage  # only joins with a page need those packages

    return JoinPage(view, host, port)
