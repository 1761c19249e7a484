"""Jobs on Spark: what is done to whole log directories, planned on the driver and worked off in tasks.

    from stratalog.spark import jobs

    jobs.count(spark, "logs").show()
    jobs.export(spark, "logs", "out", checkpoint="out-checkpoint")

``count``, ``stat`` and ``verify`` run when they are called and answer with a small DataFrame; ``export``,
``import_rows`` and ``mirror`` write, and answer with a report. ``stratalog spark JOB`` is each as a command.
Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.spark.jobs.count import count
    from stratalog.spark.jobs.export import ExportReport, export
    from stratalog.spark.jobs.import_rows import ImportReport, import_rows
    from stratalog.spark.jobs.mirror import MirrorReport, mirror
    from stratalog.spark.jobs.stat import stat
    from stratalog.spark.jobs.verify import verify

__all__ = [
    "ExportReport",
    "ImportReport",
    "MirrorReport",
    "count",
    "export",
    "import_rows",
    "mirror",
    "stat",
    "verify",
]

#: Where each name lives.
_HOME = {
    "ExportReport": "export",
    "ImportReport": "import_rows",
    "MirrorReport": "mirror",
    "count": "count",
    "export": "export",
    "import_rows": "import_rows",
    "mirror": "mirror",
    "stat": "stat",
    "verify": "verify",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'stratalog.spark.jobs' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"stratalog.spark.jobs.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
