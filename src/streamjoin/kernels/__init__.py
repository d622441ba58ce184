"""Hot loops over arrays and scalars, compiled by Numba. Imports nothing else of streamjoin."""
