"""Nodes that run side by side: on pinned threads, or one step at a time under a seeded scheduler."""
