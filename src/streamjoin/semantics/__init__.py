"""What a right answer is: spec, windows, predicates, order, oracle. Imports nothing else of streamjoin."""
