"""Nodes that run side by side: on threads, or one step at a time under a seeded scheduler."""
