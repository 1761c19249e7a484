"""What a task does for a read: its ranges as record batches, in any process that can reach the files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stratalog.errors import CorruptionError, SpillError, StorageError
from stratalog.inspect.latest.latest_reader import LatestReader, LeftOut, keys_only
from stratalog.inspect.range.reader import RangeReader
from stratalog.records.columns import Selection
from stratalog.records.layout import Check
from stratalog.spark.read.arrow_rows import SparkBatches, scan_mask
from stratalog.spark.read.planner import file_system_for, with_way_out
from stratalog.spark.read.skip_warnings import warn_of_left_out, warn_of_skipped
from stratalog.spark.worker.errors import rows_without_traceback
from stratalog.spark.worker.memory import freeze_worker
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.inspect.file.skipped_damage import SkippedDamage
    from stratalog.inspect.range.plan import LogRange
    from stratalog.inspect.range.reader import LostOffsets
    from stratalog.records.columns import DecodedColumns
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.storage.files.filesystem import FileSystem
    from stratalog.storage.segment.log_file import LogFile

__all__ = ["read_ranges"]

_Read = Callable[["LogRange"], "Iterator[tuple[LogFile, DecodedColumns]]"]

#: Spark's cost for a batch vanishes from some ten thousand rows on.
_BATCH_ROWS: Final = 32768
_BATCH_BYTES: Final = 8 << 20


@rows_without_traceback
def read_ranges(
    options: ReadOptions, names: Sequence[str], ranges: Sequence[LogRange]
) -> Iterator[pa.RecordBatch]:
    """The rows of some ranges, one after the other, with these columns."""
    freeze_worker()
    check = Check.ORDER | (Check.CRC if options.check_crc else Check.NONE)
    if options.include_control:
        check |= Check.INCLUDE_CONTROL
    selection = Selection(
        columns=scan_mask(names),
        check=check,
        batch_rows=_BATCH_ROWS,
        batch_bytes=_BATCH_BYTES,
        max_batch_bytes=options.max_batch_bytes,
    )
    file_system, _ = file_system_for(options)
    batches = SparkBatches(names, rows_max=_BATCH_ROWS)
    for each in ranges:
        assert each.topic is not None  # only partitions are planned
        assert each.partition is not None
        topic_partition = TopicPartition(each.topic, each.partition)
        run = _RangeRun(options, selection, file_system)
        try:
            for _, taken in run.read(each):
                yield from batches.of(taken, topic_partition)
        except CorruptionError as error:
            skipped = run.skipped()
            reached = skipped[-1].start_offset if skipped else each.start
            raise with_way_out(error, topic_partition, reached) from None
        except SpillError as error:
            raise _in_words_of_spark(error) from None
        run.warn(topic_partition)
        vanished = run.vanished()
        if vanished:
            _check_reachable(each.folder, file_system)
        if vanished and options.fail_on_data_loss:
            lost = vanished[0]
            raise StorageError(
                f"offsets {lost.start} to {lost.end} were deleted before they were read; "
                "failOnDataLoss=false continues without",
                path=each.folder,
            )


class _RangeRun:
    """One range as it is read: in one pass, or in two for the newest record of each key."""

    def __init__(self, options: ReadOptions, selection: Selection, file_system: FileSystem) -> None:
        def reader(chosen: Selection) -> RangeReader:
            return RangeReader(chosen, file_system, on_damage=options.on_damage)

        latest = options.latest
        self._left_out: LeftOut | None = None
        #: Reads the range: to be called once.
        self.read: _Read
        if latest is None:
            self._readers = [reader(selection)]
            self.read = self._readers[0].read
            return
        keys, records = self._readers = [reader(keys_only(selection)), reader(selection)]
        both = LatestReader(keys, records, replace(latest, temp_dir=_local_folder()))
        self._left_out = both.left_out
        self.read = both.read

    def skipped(self) -> list[SkippedDamage]:
        """What was left out because it is damaged; the second pass meets the same as the first."""
        return list(dict.fromkeys(each for reader in self._readers for each in reader.skipped))

    def vanished(self) -> list[LostOffsets]:
        return [each for reader in self._readers for each in reader.vanished]

    def warn(self, topic_partition: TopicPartition) -> None:
        """Log what was left out."""
        for skipped in self.skipped():
            warn_of_skipped(topic_partition, skipped)
        if self._left_out is not None:
            warn_of_left_out(topic_partition, self._left_out)


def _local_folder() -> str | None:
    """The first of the directories that Spark gives its workers for temporary files; None: the system's."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if os.path.isdir(folder) else None


def _in_words_of_spark(error: SpillError) -> SpillError:
    detail = error.detail.replace("memory_bytes", "latestPerKeyMemory")
    detail = detail.replace("TMPDIR", "spark.local.dir")
    return SpillError(detail, path=error.path, errno=error.errno)


def _check_reachable(folder: str, file_system: FileSystem) -> None:
    """A worker that does not see the log directory at all has not lost a partition: it must neither say so
    nor go on without it."""
    root = os.path.dirname(folder)
    try:
        file_system.list_dir(root)
    except StorageError as error:
        raise StorageError(
            f"not accessible from {socket.gethostname()}: every worker must see the log directory "
            f"under this path ({error.detail})",
            path=root,
            errno=error.errno,
        ) from None
