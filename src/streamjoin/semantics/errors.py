"""The errors a user can meet. Every message names what was given and what is allowed."""

import re
from collections.abc import Sequence

# Control characters, characters that turn the direction of text, and halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

MAX_QUOTED = 200  # characters of a given value that a message repeats


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


class StreamJoinError(Exception):
    """Base of every error raised on purpose by streamjoin.

    Messages quote what they were given, and may be printed on a terminal: control characters are escaped, but for tabs
    and line ends. An error about one argument, option or key also has it as data: `field` is its name (`window.left` is
    the left part of a window), `given` the value, `allowed` the values that would do, each None where it says nothing.
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
    """A `JoinSpec` that has no meaning: unknown column, negative window, unknown `how`."""


class PredicateError(SpecError):
    """The join predicate can not be parsed, typed or compiled.

    `text` is the predicate and `start`/`end` the offending characters (end exclusive),
    where they are known; the message shows them with a caret line.
    """

    def __init__(self, message: str, text: str = "", start: int | None = None, end: int | None = None):
        self.text, self.start, self.end = text, start, end
        if text and start is not None:
            line_start = text.rfind("\n", 0, start) + 1
            line = text[line_start:].split("\n", 1)[0]
            carets = "^" * max(1, min((end or start + 1) - start, len(line) - (start - line_start)))
            message = f"{message}\n  {line}\n  {' ' * (start - line_start)}{carets}"
        super().__init__(message, field="on", given=text or None)


class WindowError(SpecError):
    """A window that is negative, overflows, or does not fit the time columns."""


class InputError(StreamJoinError, ValueError):
    """Data that does not fit the spec: schema, types, falling or null timestamps."""


class ClosedError(StreamJoinError, RuntimeError):
    """A push to a source or a join that has ended."""


class Backpressure(StreamJoinError, TimeoutError):
    """The result buffer is full, and a wait would take longer than the timeout, or for ever, as no other thread polls.
    The pushed data was not taken."""


class IndexNotApplicableError(SpecError):
    """The chosen index can not serve this predicate."""
