"""Integer arithmetic with SQL's meaning, where Python's differs."""

from streamjoin.jit.decorator import jit


@jit
def remainder64(a, b):
    """The SQL % of integers of up to 64 bits. The result has the sign of a; b must not be 0. b = -1 has its own branch,
    because dividing the smallest integer by -1 traps."""
    if b == -1:
        return a - a
    rest = a % b
    return rest - b if rest != 0 and (rest < 0) != (a < 0) else rest


@jit
def round_divide64(a, b):
    """a / b to the nearest integer, away from zero if two are equally near. b > 0."""
    quotient = a // b
    rest = a - quotient * b
    return quotient + ((rest > b - rest) | ((rest == b - rest) & (a > 0)))
