"""The root of a log directory: lock, identity, checkpoints, topics, and what opening it recovered."""
