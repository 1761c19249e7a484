"""``verify``: whether every byte is what it must be, in tasks by bytes: several within one large segment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stratalog.inspect.partition_filter import Partitions, Topics
from stratalog.inspect.sources import Paths
from stratalog.spark.jobs.frames import frame_of
from stratalog.spark.jobs.log_paths import LogPaths
from stratalog.spark.jobs.verify_plan import verify_logs
from stratalog.spark.jobs.verify_tasks import Verifying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.storage.walk_file import Progress

__all__ = ["verify"]

_FINDING: Final = (
    "struct<position:bigint,severity:string,reason:string,detail:string,advice:string,"
    "offset:bigint,size_bytes:bigint>"
)
_DDL: Final = (
    "path string, topic string, partition int, status string, records bigint, "
    "control_records bigint, batches bigint, size_bytes bigint, unchecked_bytes bigint, "
    f"findings array<{_FINDING}>"
)


def verify(
    spark: SparkSession,
    paths: Paths,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    deep: bool = False,
    gaps: bool = False,
    store: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Check every CRC, the order of offsets within and across segments, and the lengths and counts of
    batches: a row a file, with what was found. ``deep`` decodes every record, too; ``gaps`` notes missing
    offsets. The answer is that of ``stratalog verify``."""
    logs = LogPaths.of(paths, store)
    verifying = Verifying(logs, deep=deep, gaps=gaps)
    rows = [
        (
            report.path,
            report.topic,
            report.partition,
            report.status,
            report.records,
            report.control_records,
            report.batches,
            report.size_bytes,
            report.unchecked_bytes,
            [
                (f.position, f.severity, f.reason, f.detail, f.advice, f.offset, f.size_bytes)
                for f in report.findings
            ],
        )
        for report in verify_logs(
            spark, logs.sources(topics, partitions), verifying, progress=progress
        )
    ]
    return frame_of(spark, rows, _DDL)
