"""Immutable views of a partition, and the reads on them: by offset, by time, as bytes, as columns."""
