"""The format of exactly-once commits: staged pieces, the journal, and what readers may see of them."""
