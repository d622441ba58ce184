"""Cursors of the kernels that write pairs: where a call stopped because its output was full, so that the next call
can continue.

A cursor is int64[CURSOR_SIZE], all zeros before the first call. A kernel sets cursor[0] to DONE once it has written
all pairs; the other words belong to the kernel.
"""

CURSOR_SIZE = 4
DONE = -1
MAX_SLOT = 2**31 - 1  # slots and positions are int32 in pairs
