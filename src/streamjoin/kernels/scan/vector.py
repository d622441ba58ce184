"""SIMD values inside Numba kernels: `@intrinsic` functions that emit portable LLVM vector code.

A *vector* holds `lanes` numbers of one type, a *mask* `lanes` truth values. Both exist only in variables of compiled
functions. LLVM maps them to the registers of the CPU, so any lane count is correct on any CPU, and `lanes()` is just
the fastest. These functions have no pure Python form.
"""

from __future__ import annotations

import functools

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

GROUP_PROBES = 4  # masks in a word
LANE_COUNTS = (4, 8, 16)


def _features() -> set[str]:
    """The CPU features that Numba compiles for: the host's, unless NUMBA_CPU_NAME or NUMBA_CPU_FEATURES override
    them."""
    if config.CPU_FEATURES is not None:
        return {feature[1:] for feature in config.CPU_FEATURES.split(",") if feature.startswith("+")}
    return {name for name, present in llvmlite.binding.get_host_cpu_features().items() if present}


@functools.cache
def lanes() -> int:
    """The lane count that suits this CPU: one AVX-512 or AVX2 register of 32-bit numbers.

    On other CPUs also 16: the comparisons of four 128-bit registers are packed into one, then converted to an
    integer.
    """
    features = _features()
    return 8 if "avx2" in features and not {"avx512bw", "avx512vl"} <= features else 16


@functools.cache
def has_unsigned_compare() -> bool:
    """Whether `a <=u b` on 32-bit lanes is one instruction: yes for AVX-512 and ARM, no for SSE and AVX2."""
    return not _features().isdisjoint({"avx512vl", "neon", "asimd"})


@functools.cache
def has_compress() -> bool:
    """Whether `store_compressed` of 32-bit lanes takes few instructions: only with AVX-512."""
    return "avx512vl" in _features()


HAS_COMPRESS = has_compress()  # a global, so that kernels are compiled for its value


class Vector(types.Type):
    """The Numba type of a vector; `dtype` is the scalar Numba type of its lanes."""

    def __init__(self, dtype: types.Type, count: int):
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype}, {count})")


class Mask(types.Type):
    """The Numba type of a mask."""

    def __init__(self, count: int):
        self.count = count
        super().__init__(name=f"Mask({count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        element = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(element, vector.count))


@register_model(Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager, mask):
        super().__init__(manager, mask, ir.VectorType(ir.IntType(1), mask.count))


def _constant_vector(vector: ir.VectorType, value: int | float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def _splat(builder, scalar, count: int):
    undefined = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, _constant_vector(ir.VectorType(ir.IntType(32), count), 0))


def _first(builder, count, lane_count: int):
    numbers = ir.Constant(ir.VectorType(count.type, lane_count), list(range(lane_count)))
    return builder.icmp_signed("<", numbers, _splat(builder, count, lane_count))


@intrinsic
def prefetch(typing_context, start, index):
    """Prefetch the cache line of start[index] without waiting; the place need not exist."""

    def generate(context, builder, signature, arguments):
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(fetch, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(start, types.intp), generate


@intrinsic
def pointer(typing_context, array):
    """The address of a contiguous array's first number, to be indexed like the array.

    Unlike an array in a variable, it needs no reference counting; the owner of the array must outlive it.
    """
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"):
        return None

    def generate(context, builder, signature, arguments):
        return cgutils.create_struct_proxy(array)(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def pointer_at(typing_context, address, like):
    """As `pointer`, for numbers of the type of `like`, an array, at an address; the caller keeps that memory alive."""
    if not isinstance(like, types.Array):
        return None

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(types.int64, like), generate


@intrinsic(prefer_literal=True)
def stack_array(typing_context, example, size):
    """A pointer to `size` (a literal) uninitialised numbers of the type of `example`, valid until the caller
    returns."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    number = types.unliteral(example)

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(number)
        return cgutils.alloca_once(builder, kind, size=ir.IntType(64)(size.literal_value))

    return types.CPointer(number)(number, size), generate


def _vector_at(context, builder, vector, start, index):
    kind = context.get_value_type(vector)
    return kind, builder.bitcast(builder.gep(start, [index]), kind.as_pointer()), vector.dtype.bitwidth // 8


@intrinsic(prefer_literal=True)
def load_vector(typing_context, start, index, count):
    """`count` (a literal) numbers from start[index] on, all of which must exist."""
    if not (isinstance(start, types.CPointer) and isinstance(count, types.IntegerLiteral)):
        return None
    vector = Vector(start.dtype, count.literal_value)

    def generate(context, builder, signature, arguments):
        _, place, align = _vector_at(context, builder, vector, *arguments[:2])
        return builder.load(place, align=align)

    return vector(start, types.intp, count), generate


@intrinsic(prefer_literal=True)
def load_first(typing_context, start, index, present, count):
    """As `load_vector`, but reads only the first `present` numbers; the other lanes are 0."""
    if not (isinstance(start, types.CPointer) and isinstance(count, types.IntegerLiteral)):
        return None
    vector = Vector(start.dtype, count.literal_value)

    def generate(context, builder, signature, arguments):
        kind, place, align = _vector_at(context, builder, vector, *arguments[:2])
        mask = _first(builder, arguments[2], kind.count)
        letter = "i" if isinstance(kind.element, ir.IntType) else "f"
        function = ir.FunctionType(kind, [place.type, ir.IntType(32), mask.type, kind])
        name = f"llvm.masked.load.v{kind.count}{letter}{align * 8}.p0"
        read = cgutils.get_or_insert_function(builder.module, function, name)
        return builder.call(read, [place, ir.IntType(32)(align), mask, _constant_vector(kind, 0)])

    return vector(start, types.intp, types.intp, count), generate


@intrinsic(prefer_literal=True)
def splat(typing_context, scalar, count):
    """A vector with `scalar` in every lane."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    number = types.unliteral(scalar)

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0], count.literal_value)

    return Vector(number, count.literal_value)(number, count), generate


@intrinsic(prefer_literal=True)
def ramp(typing_context, scalar, count):
    """The vector scalar, scalar + 1, ... of integers."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    number = types.unliteral(scalar)

    def generate(context, builder, signature, arguments):
        base = _splat(builder, arguments[0], count.literal_value)
        return builder.add(base, ir.Constant(base.type, list(range(count.literal_value))))

    return Vector(number, count.literal_value)(number, count), generate


@intrinsic
def store_compressed(typing_context, vector, bits, start, index):
    """Write the lanes whose bit is set to start[index] on, in order. May write scrap after them, up to lane count
    places in all."""

    def generate(context, builder, signature, arguments):
        value, mask = arguments[0], builder.trunc(arguments[1], ir.IntType(vector.count))
        mask = builder.bitcast(mask, ir.VectorType(ir.IntType(1), vector.count))
        function = ir.FunctionType(value.type, [value.type, mask.type, value.type])
        name = f"llvm.experimental.vector.compress.v{vector.count}i{vector.dtype.bitwidth}"
        pack = cgutils.get_or_insert_function(builder.module, function, name)
        packed = builder.call(pack, [value, mask, ir.Constant(value.type, ir.Undefined)])
        _, place, align = _vector_at(context, builder, vector, *arguments[2:])
        builder.store(packed, place, align=align)
        return context.get_dummy_value()

    return types.none(vector, types.uint64, start, types.intp), generate


@intrinsic
def store_vector(typing_context, vector, start, index):
    """Write all lanes to start[index] on."""

    def generate(context, builder, signature, arguments):
        _, place, align = _vector_at(context, builder, vector, *arguments[1:])
        builder.store(arguments[0], place, align=align)
        return context.get_dummy_value()

    return types.none(vector, start, types.intp), generate


@intrinsic(prefer_literal=True)
def first(typing_context, present, count):
    """The mask whose first `present` lanes are true."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(context, builder, signature, arguments):
        return _first(builder, arguments[0], count.literal_value)

    return Mask(count.literal_value)(types.intp, count), generate


def _ordered_bits(builder, value):
    """Floats as integers in the same order: for negative floats, all bits except the sign are inverted.

    -0.0 comes just below +0.0, and NaNs come beyond the infinities. (Two shifts make the mask of bits to invert; LLVM
    turns the shorter shift and AND into AVX-512 mask operations, which use the busiest port.)
    """
    bits = 32 if isinstance(value.type.element, ir.FloatType) else 64
    kind = ir.VectorType(ir.IntType(bits), value.type.count)
    number = builder.bitcast(value, kind)
    flip = builder.lshr(builder.ashr(number, _constant_vector(kind, bits - 1)), _constant_vector(kind, 1))
    return builder.xor(number, flip)


def _ordering(vector, prepare):
    integer = types.int32 if vector.dtype == types.float32 else types.int64

    def generate(context, builder, signature, arguments):
        return _ordered_bits(builder, prepare(builder, arguments[0]))

    return Vector(integer, vector.count)(vector), generate


@intrinsic
def ordered(typing_context, vector):
    """Floats as integers of the same order; NaNs beyond the infinities, -0.0 just below +0.0."""
    return _ordering(vector, lambda builder, value: value)


@intrinsic
def ordered_low(typing_context, vector):
    """As `ordered`, for lower bounds: both zeros become -0.0, the smaller one."""

    # 0 - x is +0.0 for both zeros, and its negation is -0.0; other numbers do not change.
    def smaller_zero(builder, value):
        return builder.fneg(builder.fsub(_constant_vector(value.type, 0.0), value))

    return _ordering(vector, smaller_zero)


@intrinsic
def ordered_high(typing_context, vector):
    """As `ordered`, for upper bounds: both zeros become +0.0, the greater one."""
    return _ordering(vector, lambda builder, value: builder.fadd(value, _constant_vector(value.type, 0.0)))


@intrinsic
def wrapping_sub(typing_context, left, right):
    """left - right of integers, modulo 2**bits."""
    return left(left, right), lambda context, builder, signature, arguments: builder.sub(*arguments)


def _comparison(left, right, operator: str, unsigned: bool = False):
    if left != right:
        return None

    def generate(context, builder, signature, arguments):
        if isinstance(left.dtype, types.Float):
            return builder.fcmp_ordered(operator, *arguments)
        return (builder.icmp_unsigned if unsigned else builder.icmp_signed)(operator, *arguments)

    return Mask(left.count)(left, right), generate


@intrinsic
def at_least(typing_context, left, right):
    """left >= right; false for NaN."""
    return _comparison(left, right, ">=")


@intrinsic
def at_most(typing_context, left, right):
    """left <= right; false for NaN."""
    return _comparison(left, right, "<=")


@intrinsic
def at_most_unsigned(typing_context, left, right):
    """left <= right of integers, compared as unsigned."""
    return _comparison(left, right, "<=", unsigned=True)


@intrinsic
def both(typing_context, left, right):
    """left AND right of masks."""
    return left(left, right), lambda context, builder, signature, arguments: builder.and_(*arguments)


@intrinsic
def either(typing_context, left, right):
    """left OR right of masks."""
    return left(left, right), lambda context, builder, signature, arguments: builder.or_(*arguments)


def _word(builder, mask):
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), ir.IntType(64))


@intrinsic
def word(typing_context, mask):
    """A mask as the low bits of a uint64, lane 0 in bit 0."""

    def generate(context, builder, signature, arguments):
        return _word(builder, arguments[0])

    return types.uint64(mask), generate


@intrinsic
def word_of_four(typing_context, m0, m1, m2, m3):
    """Four masks of up to 16 lanes side by side in one uint64, the first in the low bits."""

    def generate(context, builder, signature, arguments):
        # In this order, because LLVM would otherwise join neighbours in mask registers, which are scarce, instead of
        # integer registers.
        words = [_word(builder, mask) for mask in arguments]
        near, far = ir.IntType(64)(m0.count), ir.IntType(64)(2 * m0.count)
        even = builder.or_(words[0], builder.shl(words[2], far))
        odd = builder.or_(words[1], builder.shl(words[3], far))
        whole = builder.or_(even, builder.shl(odd, near))
        return whole

    return types.uint64(m0, m1, m2, m3), generate


@intrinsic
def trailing_zeros(typing_context, bits):
    """The number of the lowest set bit in a uint64; 64 for zero."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@intrinsic
def bit_count(typing_context, bits):
    """The number of set bits in a uint64."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
