"""One data file: decode it, count it, search it, skip parts of it by time, and find where it ends."""
