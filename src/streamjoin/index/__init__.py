"""Windows: where stored tuples are kept and how probes find partners among them."""
