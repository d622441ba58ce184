"""From the meaning of a predicate to machine code: typed Numba source, generated from expression trees."""
