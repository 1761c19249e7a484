"""An open log: its state, its lock, and what changes it: append, roll, flush, truncate, retain."""
