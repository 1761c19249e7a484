"""A range of offsets in one partition: resolve its bounds, plan, split into tasks, and read it."""
