"""BI-Sort as a circuit: a sorted window in external memory, with streaming merge and probe (PanJoin, section IV)."""
