"""Which partition a record goes to: by the hash of its key, exactly as Kafka's own producers choose."""

from __future__ import annotations

from typing import Final

from stratalog.records import kernel
from stratalog.records.builder import refuse_row
from stratalog.records.kernel import murmur2

__all__ = ["NO_KEY", "murmur2", "partition_of_key", "partitions_of_keys"]

#: What ``partitions_of_keys`` writes for a row without a key.
NO_KEY: Final = -1


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of_keys(rows: kernel.Rows, partitions: int, out: memoryview) -> None:
    """Write the partition of every row by its key into ``out``, 32-bit numbers; ``NO_KEY`` if it has none.
    InvalidRecordError if a key cannot be read."""
    reason = kernel.hash_keys(rows, partitions, out)
    if reason:
        raise refuse_row(0, reason)
