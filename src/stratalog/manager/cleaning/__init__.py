"""Clean up by ``cleanup.policy``: compaction, its background threads, and retention of named partitions."""
