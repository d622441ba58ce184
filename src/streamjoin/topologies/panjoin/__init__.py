"""PanJoin: subwindows dealt to workers in turn."""
