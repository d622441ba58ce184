"""The errors a user can meet. Every message names what was given and what is allowed."""


class StreamJoinError(Exception):
    """Base of every error raised on purpose by streamjoin."""


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
        super().__init__(message)


class WindowError(SpecError):
    """A window that is negative, overflows, or does not fit the time columns."""


class InputError(StreamJoinError, ValueError):
    """Data that does not fit the spec: schema, types, falling or null timestamps."""


class ClosedError(StreamJoinError, RuntimeError):
    """A push to a source or a join that has ended."""


class Backpressure(StreamJoinError, TimeoutError):
    """The result buffer stayed full for the whole timeout. The pushed data was not taken."""


class IndexNotApplicableError(SpecError):
    """The chosen index can not serve this predicate."""
