"""Turn users' records into batches, choose partitions, and write transactions over several of them."""
