"""Producer state: sequences, open transactions, snapshots, and rebuilding them from batches."""
