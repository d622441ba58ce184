"""Stream joins as circuits, in Amaranth: simulated exactly, written as Verilog, synthesised, placed and routed.

Needs the extra `hardware`. `DESIGNS` are the joins that can be built, all with the same ports; `oracle` says what
each must find. Only `streamjoin.semantics` is shared with the rest of the package.
"""

from streamjoin.hardware.parameters import HardwareError, KeyPredicate, Parameters

__all__ = ["HardwareError", "KeyPredicate", "Parameters"]
