"""Functions of the C library, as Python's `math` gives them: NaN outside of a function's domain, infinity for a value
that is too large. Python calls the same library, so the bits are the same."""

import math

from streamjoin.jit.decorator import jit

# The functions of `apply`, which knows them by their places.
NAMES = ("ln", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "power")


@jit
def ln(x):
    return math.log(x) if x > 0.0 else math.nan


@jit
def apply(function, x, y, out):
    """Function number `function` of each value, or of each two values if it takes two."""
    for i in range(len(out)):
        if function == 0:
            out[i] = ln(x[i])
        elif function == 1:
            out[i] = math.exp(x[i])
        elif function == 2:
            out[i] = math.sin(x[i])
        elif function == 3:
            out[i] = math.cos(x[i])
        elif function == 4:
            out[i] = math.tan(x[i])
        elif function == 5:
            out[i] = math.asin(x[i])
        elif function == 6:
            out[i] = math.acos(x[i])
        elif function == 7:
            out[i] = math.atan(x[i])
        elif function == 8:
            out[i] = math.atan2(x[i], y[i])
        else:
            out[i] = math.pow(x[i], y[i])
