"""The rewriting jobs on Spark: a command each, with the options of the local ones."""
