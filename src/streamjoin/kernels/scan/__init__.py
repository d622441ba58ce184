"""Vector scans of a window and checks of candidate pairs."""
