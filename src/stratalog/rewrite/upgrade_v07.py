"""Upgrade the files of Kafka 0.7 (``.kafka``) into a new log: batches of magic 2, original files untouched.

The offset of a message was its byte position, and is kept. Messages that were compressed together shared the
position of their wrapper: the first of them keeps it, and the others get the offsets after it. If a wrapper
held more messages than it had bytes, the offsets of what follows are pushed up, and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.records.builder import BATCH_BYTES, BatchBuilder, BatchOptions
from stratalog.records.columns import DecodedColumns, RegionDecoder, Selection, WalkEnd
from stratalog.records.layout import CODECS, INT32_MAX, Codec, Column, Ending
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.log_file import LogFile, Window, open_log_file
from stratalog.storage.segment.walk import walk_windows

__all__ = ["UpgradedV07", "upgrade_v07"]

_COLUMNS: Final = Column.OFFSET | Column.KEY | Column.VALUE | Column.CODEC
_CODECS: Final = tuple(CODECS.values())


@dataclass(frozen=True, slots=True)
class UpgradedV07:
    """What was written. ``moved`` are the records whose offset is not the byte position that they had."""

    records: int
    moved: int
    first_offset: int
    next_offset: int


def upgrade_v07(
    log: PartitionLog, file_system: FileSystem, paths: Sequence[str], limits: RewriteLimits
) -> UpgradedV07:
    """Append the messages of 0.7 files, in their order, to an empty log, at the offsets that they had.
    CorruptionError if a file is damaged, also at its end: nothing is left out unseen."""
    if log.log_end != log.log_start or log.log_end != 0:
        raise UsageError(f"{log.folder} is not empty: upgrade files of 0.7 into a new directory")
    records = moved = 0
    first: int | None = None
    for path in paths:
        with open_log_file(path, file_system) as log_file:
            if first is None:
                first = log_file.base_offset or 0
                log.restart(first)
            for taken in _columns(log_file, limits):
                records += taken.rows
                moved += _append(log, taken)
    log.sync()
    return UpgradedV07(records, moved, first or 0, log.log_end)


def _columns(log_file: LogFile, limits: RewriteLimits) -> Iterator[DecodedColumns]:
    decoder = RegionDecoder(Selection(columns=_COLUMNS))
    base = log_file.base_offset or 0
    done = 0

    def step(window: Window, at: int) -> WalkEnd:
        return decoder.decode_v07(
            window.data, at, window.length, base_offset=base + window.position
        )

    for pause in walk_windows(log_file, step, max_batch_bytes=INT32_MAX, reads_all=True):
        limits.note(pause.position - done)
        done = pause.position
        if decoder.rows:
            yield decoder.take()
        if pause.ending not in (Ending.END, Ending.FULL):
            error: CorruptionError = pause.error()
            raise error.located(path=log_file.path)


def _append(log: PartitionLog, taken: DecodedColumns) -> int:
    """Append records; return how many got another offset than they had."""
    offsets, moved = _rising(taken, log.log_end)
    codecs = bytes(memoryview(taken.buffers[Column.CODEC][0])[: taken.rows])
    for start, end in _runs(codecs):
        rows = kernel.Rows(
            end - start,
            offsets=(offsets, start),
            key=(*taken.buffers[Column.KEY], start),
            value=(*taken.buffers[Column.VALUE], start),
        )
        codec: Codec = _CODECS[codecs[start]]
        builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=BATCH_BYTES))
        builder.append(rows)
        log.append_as_follower(builder.out)
    return moved


def _rising(taken: DecodedColumns, least: int) -> tuple[Any, int]:
    """Return the offsets of records, each above the one before and none below ``least``, and how many differ
    from the byte positions. The offset less the number of the row never falls: its running maximum is what
    the rows get."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffer = pa.py_buffer(taken.buffers[Column.OFFSET][0])
    found = pa.Array.from_buffers(pa.int64(), taken.rows, [None, buffer])
    numbers = pa.array(range(taken.rows), pa.int64())
    rising = pc.add(pc.cumulative_max(pc.subtract(found, numbers), start=least), numbers)
    moved = pc.sum(pc.not_equal(rising, found)).as_py()
    return rising.buffers()[1], int(moved or 0)


def _runs(codecs: bytes) -> Iterator[tuple[int, int]]:
    """Yield where neighbours of one codec begin and end."""
    start = 0
    while start < len(codecs):
        rest = codecs[start:].lstrip(codecs[start : start + 1])
        end = len(codecs) - len(rest)
        yield start, end
        start = end
