"""Values gathered from many buffers by address: no copy of what is not asked for, however many there are."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from streamjoin.jit.decorator import jit

BITS = (8, 16, 32, 64)  # of the values that can be gathered


@intrinsic
def _read(_typing, address, like):
    """The value of `like`'s dtype at an address."""

    def load(context, builder, _signature, args):
        kind = context.get_value_type(like.dtype)
        return builder.load(builder.inttoptr(args[0], ir.PointerType(kind)))

    return like.dtype(types.int64, like), load


@jit
def gather(addresses, buffers, places, out):
    """out[i] = item places[i] of the buffer at addresses[buffers[i]], items being of out's dtype.

    The caller keeps the buffers alive and the places within them.
    """
    for i in range(len(out)):
        out[i] = _read(addresses[buffers[i]] + places[i] * out.itemsize, out)
