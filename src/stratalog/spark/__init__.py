"""The data pipeline on Spark: logs as a data source, read and written, in batches and as streams; and jobs.

    import stratalog.spark

    spark = stratalog.spark.session()
    spark.read.format("stratalog").load("logs").show()

Names are imported when they are first used: PySpark is loaded by those who use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# At once, which costs little: a module that is imported later takes the place of the function of its name.
from stratalog.spark.session import register, session
from stratalog.spark.worker.idle import exit_quietly_when_closed

if TYPE_CHECKING:
    from stratalog.spark.pushdown.scan import scan
    from stratalog.spark.source import StratalogSource

__all__ = ["StratalogSource", "register", "scan", "session"]

#: Where each name lives.
_HOME = {
    "StratalogSource": "stratalog.spark.source",
    "scan": "stratalog.spark.pushdown.scan",
}


# Here, because every worker of Spark's that runs code of ours imports this package first.
exit_quietly_when_closed()


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'stratalog.spark' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
