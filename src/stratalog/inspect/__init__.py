"""Questions answered without changing a byte.

    result        fields and rows, as commands and pages show them
    file          one data file: decode, count, search, skip by time, find its tail
    check         one file of any kind, checked: data, indexes, snapshots, checkpoints, metadata
    partition     one folder: its sources, log start, log end, last stable offset, offset for a time
    range         a range of offsets: bounds, plan, split, read
    count         records, batches and bytes of whole partitions
    scan          ``stratalog.scan``: any paths as Arrow
    verify        whole partitions and directories: what is damaged, and what is missing

Each may import those above it, ``storage`` and ``records``.
"""
