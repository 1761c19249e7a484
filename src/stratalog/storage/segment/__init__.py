"""One segment: its data file and indexes, finding and walking batches, and judging how a file ends."""
