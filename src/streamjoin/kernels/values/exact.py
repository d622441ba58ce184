"""Integer arithmetic with SQL's meaning, where Python's differs."""

from streamjoin.jit.decorator import jit


@jit
def remainder(a, b):
    """SQL's %: the sign of a. b is not 0; b = -1 is apart because the smallest integer / -1 traps."""
    if b == -1:
        return a - a
    rest = a % b
    return rest - b if rest != 0 and (rest < 0) != (a < 0) else rest
