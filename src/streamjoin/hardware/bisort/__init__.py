"""BI-Sort as a circuit: a sorted window in external memory, merged into and probed as streams (PanJoin, section IV)."""
