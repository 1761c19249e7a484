"""Count records, batches and bytes of partitions, whole or within bounds."""
