"""Hot loops: arrays and scalars in and out, compiled by Numba. Imports nothing else of streamjoin."""
