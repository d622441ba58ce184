"""Which results are correct: spec, windows, predicates, order, oracle. Imports nothing else of streamjoin."""
