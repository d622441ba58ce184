"""Hash tables of window tuples."""
