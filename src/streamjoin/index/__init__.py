"""Window contents: where stored tuples live and how probes find partners among them."""
