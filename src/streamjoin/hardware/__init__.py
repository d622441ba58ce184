"""Stream joins as circuits, in Amaranth: simulated exactly, exported as Verilog, synthesised, placed and routed.

Needs the extra `hardware`. `designs.DESIGNS` lists the joins that can be built, all with the same ports; `oracle`
defines what each must find. Of the rest of the package, only `streamjoin.semantics` is used.
"""
