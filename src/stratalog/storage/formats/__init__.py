"""Small files of a log directory as values: decode bytes, encode values. Whole files, read and replaced."""
