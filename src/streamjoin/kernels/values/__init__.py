"""Exact integers, floats, wide integers and text inside kernels."""
