"""The job ``verify``."""
