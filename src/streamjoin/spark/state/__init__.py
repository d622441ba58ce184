"""What a worker keeps between micro-batches, and the caches over it."""
