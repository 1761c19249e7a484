"""Read and tail partitions, seeing all of a commit or nothing of it."""
