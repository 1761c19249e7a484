"""The job ``mirror``: copy partitions with their offsets."""
