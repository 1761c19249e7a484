"""One partition on disk, in Kafka's own files. Every file call goes through ``files.filesystem``.

    names, log_config     file names and topic configs
    files                 the file-system seam: local disk, object stores, locks
    formats               small files: checkpoints, partition.metadata, meta.properties, topics
    segment               one segment: data file, indexes, finding batches, judging its tail
    producers, epochs     producer state and leader epochs, and how both are rebuilt from batches
    replace               new segments for old: the crash-safe swap, and what an interrupted one left
    admission             checks what is appended, without the lock
    recovery              opens a folder: settles, recovers, reports
    views                 immutable views of a log, and the reads on them
    commits               the format of exactly-once commits: pieces, journal, visibility
    log                   an open log and everything that changes it
    log_roles             an open log by use: append, read, maintain
    partition_log         the facade: all roles in one class

Each may import those above it and ``records``; ``tests/shape/test_layers.py`` holds the exact table.
"""
