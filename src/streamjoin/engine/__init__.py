"""The embedded engine: rows in, rows out, in this process."""
