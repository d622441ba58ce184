"""128-bit integers for kernels: a Numba type over LLVM's i128, for sums and products that outgrow 64 bits.

Values live in registers only; arrays hold them as two 64-bit limbs (low first, as Arrow's decimal128).
Division is long division, one bit a step: LLVM would call a run-time library that is not linked here.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from streamjoin.jit.decorator import jit

I128 = ir.IntType(128)
I64 = ir.IntType(64)


class Wide(types.Type):
    def __init__(self):
        super().__init__(name="Wide")


wide = Wide()


@register_model(Wide)
class _WideModel(models.PrimitiveModel):
    def __init__(self, manager, frontend):
        super().__init__(manager, frontend, I128)


@intrinsic
def widen(_typing, value):
    """Any integer -> Wide."""
    if value is wide:
        return wide(wide), lambda _c, _b, _s, args: args[0]

    def extend(_context, builder, signature, args):
        return (builder.sext if signature.args[0].signed else builder.zext)(args[0], I128)

    return wide(value), extend


@intrinsic
def from_limbs(_typing, low, high):
    """(low, high) 64-bit limbs -> Wide."""

    def join(_context, builder, _signature, args):
        upper = builder.shl(builder.sext(args[1], I128), ir.Constant(I128, 64))
        return builder.or_(upper, builder.zext(args[0], I128))

    return wide(low, high), join


@intrinsic
def low_limb(_typing, value):
    """Wide -> its lower 64 bits as int64; the value itself where it fits."""
    return types.int64(value), lambda _c, builder, _s, args: builder.trunc(args[0], I64)


@intrinsic
def high_limb(_typing, value):
    def upper(_context, builder, _signature, args):
        return builder.trunc(builder.ashr(args[0], ir.Constant(I128, 64)), I64)

    return types.int64(value), upper


def _binary(name):
    def define(_typing, a, b):
        return wide(a, b), lambda _c, builder, _s, args: getattr(builder, name)(*args)

    return intrinsic(define)


def _wide_comparison(operator, signed=True):
    def define(_typing, a, b):
        def compare(_context, builder, _signature, args):
            return (builder.icmp_signed if signed else builder.icmp_unsigned)(operator, *args)

        return types.boolean(a, b), compare

    return intrinsic(define)


add = _binary("add")
sub = _binary("sub")
mul = _binary("mul")
bit_or = _binary("or_")
shift_left = _binary("shl")
shift_right = _binary("lshr")
lt = _wide_comparison("<")
le = _wide_comparison("<=")
eq = _wide_comparison("==")
_unsigned_le = _wide_comparison("<=", signed=False)


@jit
def neg(a):
    return sub(widen(0), a)


@jit
def absolute(a):
    return neg(a) if lt(a, widen(0)) else a


@jit
def _divide(numerator, denominator):
    """Quotient and remainder of two unsigned 128-bit values, denominator not 0; 128 steps."""
    quotient = widen(0)
    remainder = widen(0)
    one = widen(1)
    for step in range(127, -1, -1):
        bit = low_limb(shift_right(numerator, widen(step))) & 1
        remainder = bit_or(shift_left(remainder, one), widen(bit))
        quotient = shift_left(quotient, one)
        if _unsigned_le(denominator, remainder):
            remainder = sub(remainder, denominator)
            quotient = bit_or(quotient, one)
    return quotient, remainder


@jit
def remainder(a, b):
    """a - b * trunc(a / b): the sign of a, as SQL's %. b is not 0."""
    rest = _divide(absolute(a), absolute(b))[1]
    return neg(rest) if lt(a, widen(0)) else rest


@jit
def floor_divide(a, b):
    """floor(a / b) for b > 0."""
    quotient, rest = _divide(absolute(a), b)
    if not lt(a, widen(0)):
        return quotient
    quotient = neg(quotient)
    return quotient if eq(rest, widen(0)) else sub(quotient, widen(1))


@jit
def round_divide(a, b):
    """a / b to the nearest integer, away from zero if two are equally near. b > 0."""
    quotient, rest = _divide(absolute(a), b)
    if le(sub(b, rest), rest):
        quotient = add(quotient, widen(1))
    return neg(quotient) if lt(a, widen(0)) else quotient


@jit
def to_float(a):
    """The nearest float64: the upper 64 bits with a sticky lowest bit round as the whole would."""
    magnitude = absolute(a)
    high = np.uint64(high_limb(magnitude))
    low = np.uint64(low_limb(magnitude))
    scale = 1.0
    if high != 0:
        shift = 64
        while high >> np.uint64(63) == 0:
            high = (high << np.uint64(1)) | (low >> np.uint64(63))
            low = low << np.uint64(1)
            shift -= 1
        low = high | np.uint64(1 if low != 0 else 0)
        scale = 2.0**shift
    result = np.float64(low) * scale
    return -result if lt(a, widen(0)) else result
