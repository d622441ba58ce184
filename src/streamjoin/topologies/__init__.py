"""How the work of a join spreads over cores: one procedure, one file."""
