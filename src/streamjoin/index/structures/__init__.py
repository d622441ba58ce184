"""What a subwindow can be made of: one structure a file."""
