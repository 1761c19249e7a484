"""Spark's Python workers: which Python they run, their memory, their errors, how idle ones end."""
