"""Many partitions in one or several log directories.

    root               a directory's lock, identity, checkpoints and topics
    read               reading and tailing, and what of a commit is visible
    write              records to batches, partitioning, transactions
    commits            exactly-once commits of staged pieces
    scheduler          named background jobs, driven by a clock
    upkeep             the jobs of open logs: flushing by time, removing deleted files
    open_partitions    the logs that are open
    appender           appends, within a transaction or without one
    topic_changes      topics are created, altered and deleted
    partition_views    what readers see of partitions, in open logs or in another process's files
    logs               ``stratalog.open``

May import ``storage`` and what is below it.
"""
