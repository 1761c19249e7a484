"""Save what is intact of damaged partitions into a new log directory, and never touch the original.

- ``survey``: one data file: runs of intact batches, and the damage between them.
- ``selection``: which runs are kept, each offset once and in order; a pure function.
- ``plan``: all of that for one partition, with what is lost and why: what a dry run prints.
- ``write``: a new partition folder from a plan; ``directory``: a new log directory from several.
"""
