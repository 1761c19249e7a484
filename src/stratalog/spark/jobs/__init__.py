"""Jobs on Spark: what is done to whole log directories, planned on the driver and worked off in tasks.

    from stratalog.spark import jobs

    jobs.count(spark, "logs").show()
    jobs.export(spark, "logs", "out", checkpoint="out-checkpoint")

``count``, ``stat`` and ``verify`` run when they are called and answer with a small DataFrame; ``export``,
``import_rows`` and ``mirror`` write, and answer with a report; ``compact``, ``erase``, ``recompress`` and
``upgrade`` rewrite logs in place; ``salvage`` saves what is intact of damaged ones. ``stratalog spark JOB``
is each as a command.

The modules have the names of the jobs. So all of them are imported at once: a module that is imported later
would take the place of its function here. None of them loads PySpark before it runs.
"""

from __future__ import annotations

from stratalog.spark.jobs.counting.count import count
from stratalog.spark.jobs.counting.stat import stat
from stratalog.spark.jobs.exporting.export import ExportReport, export
from stratalog.spark.jobs.importing.import_rows import ImportReport, import_rows
from stratalog.spark.jobs.mirroring.mirror import MirrorReport, mirror
from stratalog.spark.jobs.rewriting.verbs import compact, erase, recompress, upgrade
from stratalog.spark.jobs.salvaging.salvage import salvage
from stratalog.spark.jobs.verifying.verify import verify

__all__ = [
    "ExportReport",
    "ImportReport",
    "MirrorReport",
    "compact",
    "count",
    "erase",
    "export",
    "import_rows",
    "mirror",
    "recompress",
    "salvage",
    "stat",
    "upgrade",
    "verify",
]
