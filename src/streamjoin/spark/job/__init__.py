"""Jobs described in TOML files: reading, running, resuming."""
