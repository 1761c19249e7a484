"""Which partition a record goes to: by the hash of its key, exactly as Kafka's own producers choose."""

from __future__ import annotations

from stratalog.records.kernel import murmur2

__all__ = ["murmur2", "partition_of_key"]


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
