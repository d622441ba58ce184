"""Atomic operations on int64 arrays inside Numba kernels, and the back-off of a waiting thread.

Each operation names its memory ordering; its callers say what the other thread sees. A plain `while flag[0] == 0` never
ends in compiled code, because the compiler moves the load out of the loop: use `load_acquire`. These functions have no
pure Python form.
"""

from __future__ import annotations

import platform
import sys

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streamjoin.jit.decorator import inner, jit

# Words of different writers lie this many int64 apart: two cache lines, because CPUs fetch neighbouring lines together.
LINE_PAIR = 16

# A waiting thread first pauses SPINS times, a few microseconds in all, because the other thread is often about to
# answer. Without futexes it then yields its core YIELDS times, so that the other thread can run where there are fewer
# cores than threads, and finally naps, each time for an eighth of the time it has slept so far, within these bounds in
# microseconds.
SPINS, YIELDS = 200, 20
SHORTEST_NAP, LONGEST_NAP = 50, 10_000

# Words of a bell: how often it was rung, whether its thread is to end, and how many threads sleep on it.
BELL_RUNG, BELL_STOPPED, BELL_SLEEPERS = 0, 1, 2

# The number of Linux's system call that lets a thread sleep until a word changes (0: not known here).
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
FUTEX_WAIT, FUTEX_WAKE, ALL = 128, 129, 2**31 - 1  # the private variants: only threads of this process wait

yield_core = types.ExternalFunction("sched_yield", types.int32())
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_system_call = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


def _address_of(context, builder, array, arguments):
    """The address of array[index]."""
    data = cgutils.create_struct_proxy(array)(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


def _is_int64_array(array) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int64


@intrinsic
def load_acquire(typing_context, array, index):
    """Load array[index] with acquire ordering: whatever the writer wrote before its `store_release` of this value is
    visible afterwards."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_address_of(context, builder, array, arguments), "acquire", 8)

    return types.int64(array, types.intp), generate


@intrinsic
def store_release(typing_context, array, index, value):
    """Set array[index] = value with release ordering: a thread that loads the value sees all earlier writes."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[2], _address_of(context, builder, array, arguments), "release", 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.int64), generate


@intrinsic
def fetch_add(typing_context, array, index, value):
    """Add to array[index] and return the old value; sequentially consistent."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw(
            "add", _address_of(context, builder, array, arguments), arguments[2], "seq_cst"
        )

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def compare_exchange(typing_context, array, index, expected, value):
    """Set array[index] to `value` if it is `expected`; return whether it was. Sequentially consistent."""
    if not _is_int64_array(array):
        return None

    def generate(context, builder, signature, arguments):
        place = _address_of(context, builder, array, arguments)
        outcome = builder.cmpxchg(place, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), generate


@intrinsic
def fence(typing_context):
    """A full fence: for every thread, all loads and stores before it happen before all that follow."""

    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def pause(typing_context):
    """Tell the CPU that this is a waiting loop, where it has such an instruction."""

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


# Called from Python, these keep the GIL: releasing it for a nanosecond would let any waiting thread take it.


@jit(nogil=False)
def read(words, index):
    """`load_acquire`, callable from Python."""
    return load_acquire(words, index)


@jit(nogil=False)
def write(words, index, value):
    """`store_release`, callable from Python."""
    store_release(words, index, value)


@jit(nogil=False)
def ring(bell):
    """Increment the count, and wake the threads that sleep on the bell, if any."""
    fetch_add(bell, BELL_RUNG, 1)
    # Both operations are sequentially consistent: either this thread sees the sleeper, or the sleeper sees the new
    # count.
    if FUTEX and fetch_add(bell, BELL_SLEEPERS, 0):
        _system_call(FUTEX, bell.ctypes.data, FUTEX_WAKE, ALL, 0, 0, 0)


@jit
def wait_for_ring(bell, seen, patience):
    """Wait until the bell has been rung more than `seen` times, or for about `patience` microseconds; return its count.

    Spins, then sleeps until woken. Where the system has no futexes, it yields and then naps for growing times, so that
    an idle thread costs little and does not starve a small busy machine; it then reacts within an eighth of the time it
    has waited.
    """
    value = load_acquire(bell, BELL_RUNG)
    for _ in range(SPINS):
        if value != seen:
            return value
        pause()
        value = load_acquire(bell, BELL_RUNG)
    return sleep_until_rung(bell, seen, patience) if FUTEX else nap_until_rung(bell, seen, patience)


@jit
def sleep_for_ring(bell, seen, patience):
    """As `wait_for_ring`, but sleeps at once: for threads that share their cores with those they wait for."""
    value = load_acquire(bell, BELL_RUNG)
    if value != seen:
        return value
    return sleep_until_rung(bell, seen, patience) if FUTEX else nap_until_rung(bell, seen, patience)


@inner
def sleep_until_rung(bell, seen, patience):
    most = np.array([patience // 1_000_000, patience % 1_000_000 * 1_000])  # seconds and nanoseconds
    fetch_add(bell, BELL_SLEEPERS, 1)
    # Returns at once if the lower half of the count has changed by now.
    _system_call(FUTEX, bell.ctypes.data, FUTEX_WAIT, seen & 0xFFFFFFFF, most.ctypes.data, 0, 0)
    fetch_add(bell, BELL_SLEEPERS, -1)
    return load_acquire(bell, BELL_RUNG)


@inner
def nap_until_rung(bell, seen, patience):
    value = load_acquire(bell, BELL_RUNG)
    for _ in range(YIELDS):
        if value != seen:
            return value
        yield_core()
        value = load_acquire(bell, BELL_RUNG)
    slept = 0
    while value == seen and slept < patience:
        nap = min(max(SHORTEST_NAP, slept // 8), LONGEST_NAP)
        _usleep(nap)
        slept += nap
        value = load_acquire(bell, BELL_RUNG)
    return value
