"""Replace segments by others with the same offsets, crash-safe, and settle what an interrupted swap left."""
