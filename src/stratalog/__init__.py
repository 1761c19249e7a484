"""Stratalog: the Kafka partition log as a Python library.

    import stratalog

    for batch in stratalog.scan("orders-0/00000000000000000000.log"):
        print(batch.num_rows)

Names are imported when they are first used: ``import stratalog`` itself loads next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.errors import (
        CorruptionError,
        InvalidRecordError,
        LimitExceededError,
        StorageError,
        StratalogError,
        UsageError,
    )
    from stratalog.inspect.scan import Scan, scan
    from stratalog.types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "CorruptionError",
    "InvalidRecordError",
    "LimitExceededError",
    "Scan",
    "StorageError",
    "StratalogError",
    "TopicPartition",
    "UsageError",
    "__version__",
    "scan",
]

_HOME = {
    "CorruptionError": "stratalog.errors",
    "InvalidRecordError": "stratalog.errors",
    "LimitExceededError": "stratalog.errors",
    "Scan": "stratalog.inspect.scan",
    "StorageError": "stratalog.errors",
    "StratalogError": "stratalog.errors",
    "TopicPartition": "stratalog.types",
    "UsageError": "stratalog.errors",
    "scan": "stratalog.inspect.scan",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'stratalog' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
