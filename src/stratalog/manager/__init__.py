"""Many partitions in one or several log directories: what stands in a directory's root, and who may write."""
