"""Checkpoints of stopped queries: what they hold, and how they are brought to another number of workers."""
