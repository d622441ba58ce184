"""PanJoin: a manager deals subwindows to workers in turn."""
