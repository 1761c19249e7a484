"""Write path: tasks stage pieces, the driver commits them once."""
