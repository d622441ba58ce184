"""Partitioned structures: LLAT, RaP-Table, WiB+-Tree."""
