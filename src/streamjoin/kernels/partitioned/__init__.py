"""Kernels of the partitioned structures: LLAT, RaP-Table and WiB+-Tree."""
