"""Kafka's cluster metadata: which topics, partitions, ids and configs there are.

Kafka 3.3 and later (KRaft) keeps them as records in ``__cluster_metadata-0`` of the first log directory: a
snapshot, and a log of changes above it. Stratalog keeps its own in the same place and form, so that either
can continue what the other wrote.

    fields      the encoding of fields: variable-length numbers, strings, arrays, tagged fields
    records     metadata records and control records as values, by Kafka's field tables
    image       what all records together say: the state of the cluster
    changes     what to append for a new topic, a new config, a deleted topic
    batches     records in the batches of a metadata log or snapshot
    snapshot    snapshot files
    reader      a metadata directory, read: the newest snapshot and the log above it
    store       a metadata directory that this process may change

Everything but ``reader`` and ``store`` is pure.
"""
