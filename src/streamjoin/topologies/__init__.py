"""The topologies: how a join spreads its work over cores, one procedure per file or folder."""
