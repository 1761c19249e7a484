"""Stratalog: the Kafka partition log as a Python library.

    import stratalog

    with stratalog.open("logs") as logs:                      # read, write, tail: a Kafka log directory
        logs.create("orders", 3)
        logs.append("orders", [{"key": "a", "value": "1"}])

    for batch in stratalog.scan("logs", topics=["orders"]):   # only read, as Arrow record batches
        print(batch.num_rows)

Names are imported when they are first used: ``import stratalog`` itself loads next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.errors import (
        BatchTooLargeError,
        CorruptionError,
        DamagedLogError,
        FencedProducerError,
        InvalidRecordError,
        InvalidTimestampError,
        LimitExceededError,
        LockedError,
        LogFailedError,
        OffsetOrderError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        ProducerError,
        SpillError,
        StorageError,
        StratalogError,
        TransactionStateError,
        UnknownPartitionError,
        UsageError,
    )
    from stratalog.inspect.scan import Scan, scan
    from stratalog.manager.logs import Logs
    from stratalog.manager.logs import open_logs as open  # noqa: A004
    from stratalog.manager.rewrites import RewriteOptions
    from stratalog.records.model import Record, RecordHeader
    from stratalog.storage.broker_config import BrokerConfig
    from stratalog.storage.log_config import LogConfig
    from stratalog.storage.partition_log import PartitionLog
    from stratalog.types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "BatchTooLargeError",
    "BrokerConfig",
    "CorruptionError",
    "DamagedLogError",
    "FencedProducerError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "LimitExceededError",
    "LockedError",
    "LogConfig",
    "LogFailedError",
    "Logs",
    "OffsetOrderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "ProducerError",
    "Record",
    "RecordHeader",
    "RewriteOptions",
    "Scan",
    "SpillError",
    "StorageError",
    "StratalogError",
    "TopicPartition",
    "TransactionStateError",
    "UnknownPartitionError",
    "UsageError",
    "__version__",
    "open",
    "scan",
]

#: Where each name lives, and what it is called there if that is something else.
_HOME = {
    "BatchTooLargeError": ("stratalog.errors", "BatchTooLargeError"),
    "BrokerConfig": ("stratalog.storage.broker_config", "BrokerConfig"),
    "CorruptionError": ("stratalog.errors", "CorruptionError"),
    "DamagedLogError": ("stratalog.errors", "DamagedLogError"),
    "FencedProducerError": ("stratalog.errors", "FencedProducerError"),
    "InvalidRecordError": ("stratalog.errors", "InvalidRecordError"),
    "InvalidTimestampError": ("stratalog.errors", "InvalidTimestampError"),
    "LimitExceededError": ("stratalog.errors", "LimitExceededError"),
    "LockedError": ("stratalog.errors", "LockedError"),
    "LogConfig": ("stratalog.storage.log_config", "LogConfig"),
    "LogFailedError": ("stratalog.errors", "LogFailedError"),
    "Logs": ("stratalog.manager.logs", "Logs"),
    "OffsetOrderError": ("stratalog.errors", "OffsetOrderError"),
    "OffsetOutOfRangeError": ("stratalog.errors", "OffsetOutOfRangeError"),
    "OutOfOrderSequenceError": ("stratalog.errors", "OutOfOrderSequenceError"),
    "PartitionLog": ("stratalog.storage.partition_log", "PartitionLog"),
    "ProducerError": ("stratalog.errors", "ProducerError"),
    "Record": ("stratalog.records.model", "Record"),
    "RecordHeader": ("stratalog.records.model", "RecordHeader"),
    "RewriteOptions": ("stratalog.manager.rewrites", "RewriteOptions"),
    "Scan": ("stratalog.inspect.scan", "Scan"),
    "SpillError": ("stratalog.errors", "SpillError"),
    "StorageError": ("stratalog.errors", "StorageError"),
    "StratalogError": ("stratalog.errors", "StratalogError"),
    "TopicPartition": ("stratalog.types", "TopicPartition"),
    "TransactionStateError": ("stratalog.errors", "TransactionStateError"),
    "UnknownPartitionError": ("stratalog.errors", "UnknownPartitionError"),
    "UsageError": ("stratalog.errors", "UsageError"),
    "open": ("stratalog.manager.logs", "open_logs"),
    "scan": ("stratalog.inspect.scan", "scan"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'stratalog' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
