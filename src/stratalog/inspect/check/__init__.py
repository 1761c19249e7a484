"""Check one file of any kind and report findings: data files, indexes, snapshots, checkpoints, metadata."""
