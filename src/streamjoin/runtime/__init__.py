"""Nodes that work side by side: on pinned threads, or one step at a time under a seeded scheduler."""
