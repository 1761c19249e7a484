"""``verify``: every file of log directories checked, in tasks by bytes: several within one large segment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import Partitions, Topics, partition_filter
from stratalog.inspect.partition.sources import Paths
from stratalog.spark.jobs.run.frames import frame_of
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.verifying.plan import verify_logs
from stratalog.spark.jobs.verifying.tasks import Verifying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["verify"]

_FINDING: Final = (
    "struct<position:bigint,severity:string,reason:string,detail:string,advice:string,"
    "offset:bigint,size_bytes:bigint>"
)
_DDL: Final = (
    "path string, topic string, partition int, status string, records bigint, "
    "control_records bigint, batches bigint, size_bytes bigint, unchecked_bytes bigint, "
    f"findings array<{_FINDING}>, kind string"
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
    """Check every file of log directories, and whether records are missing: a row for each file, with its
    findings. ``deep`` also decodes every record; ``gaps`` notes offsets that are missing inside segments.
    The rows are those of ``stratalog verify``."""
    logs = LogPaths.of(paths, store)
    verifying = Verifying(logs, deep=deep, gaps=gaps)
    wanted = partition_filter(topics, partitions)
    refused: list[StorageError] = []
    sources = logs.sources_of(wanted, refused.append)
    rows = [
        (
            report.path,
            report.topic,
            report.partition,
            report.status,
            report.records if report.has_batches else None,
            report.control_records if report.has_batches else None,
            report.batches if report.has_batches else None,
            report.size_bytes,
            report.unchecked_bytes,
            [
                (f.position, f.severity, f.reason, f.detail, f.advice, f.offset, f.size_bytes)
                for f in report.findings
            ],
            report.kind.value,
        )
        for report in verify_logs(
            spark,
            sources,
            verifying,
            wanted=wanted,
            refused=tuple(refused),
            progress=progress,
        )
    ]
    return frame_of(spark, rows, _DDL)
