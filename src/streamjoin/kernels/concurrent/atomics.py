"""Atomic operations on int64 arrays inside Numba kernels, and the back-off of a thread that waits.

Each operation names its memory ordering; whoever calls it says what the other thread sees. A plain
`while flag[0] == 0` never ends in compiled code, because the load is moved out of the loop: use `load`.
These functions have no pure Python form.
"""

from __future__ import annotations

import platform
import sys

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streamjoin.jit.decorator import inner, jit

LINE = 16  # int64 numbers between words of different writers: two cache lines, since neighbours are fetched together

SPINS = 200  # pauses, a few microseconds in all: the other thread runs and is about to answer
YIELDS = 20  # then let others run: with fewer cores than threads, they must, for the answer to come
SHORTEST_NAP, LONGEST_NAP = 50, 10_000  # microseconds; then sleep, an eighth of what was slept already

# Words of a bell: how often it was rung, (that it was stopped,) and threads that sleep.
RUNG, SLEEPERS = 0, 2

# Linux can let a thread sleep until a word changes. The number of that system call, where we know it.
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
FUTEX_WAIT, FUTEX_WAKE, ALL = 128, 129, 2**31 - 1  # among the threads of this process

yield_core = types.ExternalFunction("sched_yield", types.int32())
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_system_call = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


def _place(context, builder, array, arguments):
    """The address of array[index]."""
    data = cgutils.create_struct_proxy(array)(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


def _is_int64_array(array) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int64


@intrinsic
def load(typing_context, array, index):
    """array[index], acquiring: what its writer wrote before a `store` of this value is visible afterwards."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_place(context, builder, array, arguments), "acquire", 8)

    return types.int64(array, types.intp), generate


@intrinsic
def store(typing_context, array, index, value):
    """array[index] = value, releasing: whoever loads the value sees all that was written before."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[2], _place(context, builder, array, arguments), "release", 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.int64), generate


@intrinsic
def fetch_add(typing_context, array, index, value):
    """Add to array[index] and return what was there; sequentially consistent."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _place(context, builder, array, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def compare_exchange(typing_context, array, index, expected, value):
    """If array[index] is `expected`, make it `value`; whether it was. Sequentially consistent."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, array, arguments)
        outcome = builder.cmpxchg(place, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), generate


@intrinsic
def fence(typing_context):
    """All loads and stores before it happen, for every thread, before all that follow."""

    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def pause(typing_context):
    """Tell the core that this is a waiting loop, where it has an instruction for that."""

    def generate(context, builder, signature, arguments):
        target = binding.get_process_triple()
        if target.startswith(("x86_64", "i686")):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif target.startswith(("aarch64", "arm64")):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [ir.IntType(32)(1)])
        return context.get_dummy_value()

    return types.none(), generate


# For Python, they keep the GIL: giving it up for a nanosecond lets every thread that waits for it in between.


@jit(nogil=False)
def read(words, index):
    """`load`, for Python."""
    return load(words, index)


@jit(nogil=False)
def write(words, index, value):
    """`store`, for Python."""
    store(words, index, value)


@jit(nogil=False)
def ring(bell):
    """Count up, and wake who sleeps on it, if somebody does."""
    fetch_add(bell, RUNG, 1)
    # Both are sequentially consistent: either we see that a thread sleeps, or it sees the new count.
    if FUTEX and fetch_add(bell, SLEEPERS, 0):
        _system_call(FUTEX, bell.ctypes.data, FUTEX_WAKE, ALL, 0, 0, 0)


@jit
def wait_for_ring(bell, seen, patience):
    """Wait while the bell has been rung `seen` times, for about `patience` microseconds at most; how often it was then.

    Spins, then sleeps until it is woken. Where the system can not do that: yields, then naps ever longer, so that an
    idle thread costs little and a busy small machine is not starved; it reacts after an eighth of the time it waited.
    """
    value = load(bell, RUNG)
    for _ in range(SPINS):
        if value != seen:
            return value
        pause()
        value = load(bell, RUNG)
    return sleep_until_rung(bell, seen, patience) if FUTEX else nap_until_rung(bell, seen, patience)


@inner
def sleep_until_rung(bell, seen, patience):
    most = np.array([patience // 1_000_000, patience % 1_000_000 * 1_000])  # seconds and nanoseconds
    fetch_add(bell, SLEEPERS, 1)
    # Returns at once if the lower half of the count is another by now.
    _system_call(FUTEX, bell.ctypes.data, FUTEX_WAIT, seen & 0xFFFFFFFF, most.ctypes.data, 0, 0)
    fetch_add(bell, SLEEPERS, -1)
    return load(bell, RUNG)


@inner
def nap_until_rung(bell, seen, patience):
    value = load(bell, RUNG)
    for _ in range(YIELDS):
        if value != seen:
            return value
        yield_core()
        value = load(bell, RUNG)
    slept = 0
    while value == seen and slept < patience:
        nap = min(max(SHORTEST_NAP, slept // 8), LONGEST_NAP)
        _usleep(nap)
        slept += nap
        value = load(bell, RUNG)
    return value
