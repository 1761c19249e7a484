"""One partition folder: its segments, where it starts and ends, and what of it is committed."""
