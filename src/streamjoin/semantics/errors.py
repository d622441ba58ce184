"""The errors a user can meet. Every message names what was given and what is allowed."""

import difflib
import re
from collections.abc import Sequence

# Control characters, characters that turn the direction of text, and halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

MAX_QUOTED = 200  # characters of a given value that a message repeats
MAX_MESSAGE = 600  # characters of a message about a predicate, not counting the excerpt
AROUND = 60  # characters shown before an error's place; twice as many from there on


def short_repr(value: object, most: int = MAX_QUOTED) -> str:
    """`repr(value)`, cut in the middle to about `most` characters; works for integers that Python does not print."""
    if isinstance(value, int) and value.bit_length() > 4 * most:
        digits = int(value.bit_length() * 0.30103) + 1
        return f"an integer of about {digits} digits"
    if isinstance(value, (str, bytes)) and len(value) > most:
        half = most // 2
        return f"{value[:half]!r}...{value[-half:]!r}"
    text = repr(value)
    return text if len(text) <= 4 * most else f"{text[: 2 * most]}...{text[-2 * most :]}"


def without_middle(text: str, most: int = MAX_MESSAGE) -> str:
    """The text, without its middle if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"


def did_you_mean(given: object, known: Sequence[str]) -> str:
    """A question about the known name that is most like the given one; nothing if none is.

    >>> did_you_mean("Price", ["ts", "price"])
    "; did you mean 'price'?"
    """
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(given).lower(), lowered, n=1)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


class StreamJoinError(Exception):
    """Base of every error raised on purpose by streamjoin.

    Messages quote what they were given, and may be printed on a terminal: control characters are escaped, but for tabs
    and line ends. An error about one argument, option or key also has it as data: `field` is its name (`window.left` is
    the left part of a window), `given` the value, `allowed` the allowed values; each is None where unknown.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        given: object = None,
        allowed: str | Sequence[str] | None = None,
    ):
        self.field, self.given, self.allowed = field, given, allowed
        super().__init__(message)

    def __str__(self) -> str:
        return CONTROL.sub(
            lambda found: found[0] if found[0] in "\t\n" else ascii(found[0])[1:-1], super().__str__()
        )


class SpecError(StreamJoinError, ValueError):
    """An invalid `JoinSpec`: unknown column, negative window, unknown `how`."""


ALLOWED_PREDICATE = "a condition in SQL over columns of left and right, or a callable f(left_row, right_row)"


class PredicateError(SpecError):
    """The join predicate cannot be parsed, typed or compiled. Its `field` is "on" ("keep.by" for the expression of
    `Nearest`), and `given` the whole predicate.

    `text` is the predicate and `start`/`end` the offending characters (end exclusive),
    where they are known; the message shows them with a caret line.
    """

    def __init__(self, message: str, text: str = "", start: int | None = None, end: int | None = None):
        self.text, self.start, self.end = text, start, end
        message = without_middle(message)
        if text and start is not None:
            message = f"{message}\n{_excerpt(text, start, start + 1 if end is None else end)}"
        super().__init__(message, field="on", given=text or None, allowed=ALLOWED_PREDICATE)


def _excerpt(text: str, start: int, end: int) -> str:
    """The line of `text` that has `start`, around that place where it is long, and carets below start to end."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", first)
    last = len(text) if last < 0 else last
    end = max(min(end, last), start + 1)
    shown_from = max(first, min(start - AROUND, last - 2 * AROUND)) if last - first > 3 * AROUND else first
    shown_to = min(last, shown_from + 3 * AROUND)
    before, after = "... " * (shown_from > first), " ..." * (shown_to < last)
    carets = "^" * (min(end, max(shown_to, start + 1)) - start)
    line = f"  {before}{text[shown_from:shown_to]}{after}"
    return f"{line}\n  {' ' * (len(before) + start - shown_from)}{carets}"


class WindowError(SpecError):
    """A window that is negative, overflows, or does not fit the time columns."""


class InputError(StreamJoinError, ValueError):
    """Data that does not fit the spec: schema, types, falling or null timestamps."""


class ClosedError(StreamJoinError, RuntimeError):
    """A push to a source or a join that has ended."""


class Backpressure(StreamJoinError, TimeoutError):
    """The result buffer is full, and a wait would exceed the timeout, or never end because no other thread polls. The
    join did not take the pushed data."""


class IndexNotApplicableError(SpecError):
    """The chosen index cannot serve this predicate."""
