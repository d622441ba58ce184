"""Lock-free queues and gates, and the compiled nodes that run on them."""
