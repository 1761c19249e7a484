"""A batch read: the directory as it is when the first action runs, and the same rows at every later one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from stratalog.spark.read.planner import LogDirectories
from stratalog.spark.read.task import read_ranges
from stratalog.spark.worker.errors import without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.inspect.range.plan import LogRange
    from stratalog.spark.options.read_options import ReadOptions

__all__ = ["BatchReader", "RangePartition"]


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[LogRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)

    @without_traceback
    def partitions(self) -> Sequence[RangePartition]:
        options = self._options
        directories = LogDirectories(options)
        sources = directories.sources()
        ends = directories.ends(sources)
        start, end = directories.bounds(sources, ends)
        directories.check_end(options.end, ends, end)
        directories.warn_of_skipped(ends, end)
        return [RangePartition(each) for each in directories.plan(sources, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there was nothing to plan, Spark still runs one task, and hands it nothing.
        ranges = partition.ranges if isinstance(partition, RangePartition) else ()
        return read_ranges(self._options, self._names, ranges)
