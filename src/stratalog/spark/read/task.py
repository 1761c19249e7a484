"""What a task does for a read: its ranges as record batches, in any process that can reach the files."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.range.reader import RangeReader
from stratalog.records.columns import Selection
from stratalog.records.layout import Check
from stratalog.spark.read.arrow_rows import SparkBatches, scan_mask
from stratalog.spark.read.planner import file_system_for, with_way_out
from stratalog.spark.read.skip_warnings import warn_of_skipped
from stratalog.spark.worker.errors import rows_without_traceback
from stratalog.spark.worker.memory import freeze_worker
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.inspect.range.plan import LogRange
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.storage.files.filesystem import FileSystem

__all__ = ["read_ranges"]

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
        reader = RangeReader(selection, file_system, on_damage=options.on_damage)
        assert each.topic is not None  # only partitions are planned
        assert each.partition is not None
        place = TopicPartition(each.topic, each.partition)
        try:
            for _, taken in reader.read(each):
                yield from batches.of(taken, place)
        except CorruptionError as error:
            reached = reader.skipped[-1].start_offset if reader.skipped else each.start
            raise with_way_out(error, place, reached) from None
        for skipped in reader.skipped:
            warn_of_skipped(place, skipped)
        if reader.vanished:
            _check_reachable(each.folder, file_system)
        if reader.vanished and options.fail_on_data_loss:
            lost = reader.vanished[0]
            raise StorageError(
                f"offsets {lost.start} to {lost.end} were deleted before they were read; "
                "failOnDataLoss=false continues without",
                path=each.folder,
            )


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
