"""The page of a running join: what it shows, and how it is served. Nothing here knows an engine."""
