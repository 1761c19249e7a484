"""Leader epochs: the history of a partition's leaders, its file, and reading it from batches."""
