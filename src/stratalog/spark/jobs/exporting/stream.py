"""Write the new records of an export with a checkpoint, as a stream that ends."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stratalog.spark.jobs.exporting.columns import COUNTED, SOURCE_COLUMNS, decoded
from stratalog.spark.jobs.exporting.note import check_note
from stratalog.spark.jobs.exporting.plan import ExportedRecords, ExportPlan, Target
from stratalog.spark.jobs.exporting.report import ExportedPartition, ExportReport
from stratalog.spark.options.columns import COLUMNS
from stratalog.spark.options.offsets import parse_offsets_dict
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["ExportStream"]


class ExportStream:
    """An export with a checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        plan: ExportPlan,
        wanted: ExportedRecords,
        target: Target,
        checkpoint: str,
        batch_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._wanted = wanted
        self._target = target
        self._checkpoint = checkpoint
        self._batch_bytes = batch_bytes
        self._progress = progress
        self._seen: dict[int, Mapping[str, Any]] = {}  # progress by batch

    def run(self, rows: tuple[ExportedPartition, ...]) -> ExportReport:
        check_note(self._checkpoint, self._note())
        query = self._writer(self._frame())
        query = (
            query.toTable(self._target.to)
            if self._target.is_table
            else query.start(self._target.to)
        )
        starts = {TopicPartition(each.topic, each.partition): each for each in rows}
        total = sum(each.size_bytes for each in rows)
        try:
            while not query.awaitTermination(0.2):
                self._look(query)
                if self._progress is not None:
                    self._progress(self._bytes_done(starts, total))
        finally:
            if query.isActive:
                query.stop()
        self._look(query)
        reached = self._reached()
        return ExportReport(
            self._target.to,
            self._target.format,
            tuple(
                ExportedPartition(
                    *topic_partition,
                    # One that is gone has nothing to be read any more.
                    starts[topic_partition].start_offset if topic_partition in starts else end,
                    max(
                        end,
                        starts[topic_partition].start_offset if topic_partition in starts else end,
                    ),
                    starts[topic_partition].size_bytes if topic_partition in starts else 0,
                )
                for topic_partition, end in sorted(reached.items())
            ),
            sum(map(_records_written, self._seen.values())),
            sum(1 for each in self._seen.values() if _records_written(each)),
        )

    def _frame(self) -> DataFrame:
        from pyspark.sql import functions as f

        reader = self._spark.readStream.format("stratalog")
        options = {
            **self._plan.options,
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(self._batch_bytes),
            "columns": ",".join((*SOURCE_COLUMNS, *_others_in(self._wanted.where or ""))),
        }
        read = reader.options(**options).load()
        if self._wanted.where is not None:
            read = read.where(self._wanted.where)
        frame = decoded(read, self._target.decode, self._target.schema)
        return frame.observe(COUNTED, f.count(f.lit(1)).alias("records"))

    def _writer(self, frame: DataFrame) -> Any:
        writer = (
            frame.writeStream.format(self._target.format)
            .outputMode("append")
            .options(**self._target.options)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
        )
        by = self._target.partition_by
        return writer.partitionBy(*by) if by else writer

    def _look(self, query: Any) -> None:
        for each in query.recentProgress:
            progress = json.loads(each.json) if hasattr(each, "json") else each
            self._seen[int(progress["batchId"])] = progress

    def _reached(self) -> dict[TopicPartition, int]:
        """How far the last batch went; where there was none, nothing is new."""
        for number in sorted(self._seen, reverse=True):
            end = self._seen[number]["sources"][0]["endOffset"]
            if end is not None:
                reached = json.loads(end) if isinstance(end, str) else end
                return parse_offsets_dict(reached, "the checkpoint")
        return {}

    def _bytes_done(self, starts: Mapping[TopicPartition, ExportedPartition], total: int) -> int:
        wanted = sum(each.end_offset - each.start_offset for each in starts.values())
        done = sum(
            max(0, end - starts[topic_partition].start_offset)
            for topic_partition, end in self._reached().items()
            if topic_partition in starts
        )
        return total * min(done, wanted) // wanted if wanted else total

    def _note(self) -> dict[str, Any]:
        """What the checkpoint belongs to."""
        target, wanted = self._target, self._wanted
        return {
            "to": target.to,
            "format": target.format,
            "decode": target.decode,
            "schema": target.schema,
            "where": wanted.where,
            "topics": wanted.topics,
            "partitions": wanted.partitions,
            "partition_by": list(target.partition_by),
            "committed": wanted.committed,
            "source": list(self._plan.logs.absolute),
        }


def _records_written(progress: Mapping[str, Any]) -> int:
    """What came out behind the condition: Spark itself counts what went in."""
    counted = progress.get("observedMetrics", {}).get(COUNTED)
    if counted is None:
        return 0
    # Spark Connect has the row as its values, and its schema beside them.
    return int(counted["records"] if "records" in counted else counted["values"][0])


def _others_in(where: str) -> list[str]:
    """The columns beyond those that are written which a condition may speak of."""
    words = {word.lower() for word in re.findall(r"\w+", where)}
    return [name for name in COLUMNS if name not in SOURCE_COLUMNS and name.lower() in words]
