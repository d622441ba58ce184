"""The join as Spark runs it: packing, routing, the stateful processor and its worker."""
