"""Sorted runs, strips and intervals."""
