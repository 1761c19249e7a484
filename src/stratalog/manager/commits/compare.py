"""Find how much of a commit a log holds: compare the log with the pieces, batch by batch.

The batches of a commit are written in order. So if one of them is found, all before it were
written, too, even if they are not there any more: a broker that was started since may have deleted or
compacted them, as it would have done had the commit been finished. To append those again would bring back
what the topic has given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stratalog.records.columns import decode_records
from stratalog.records.layout import ROW_WIDTH, Row
from stratalog.storage.commits.piece_reader import BatchWindow, BatchWindows, open_piece
from stratalog.storage.commits.records import PlannedPiece
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import LogView

__all__ = ["NOTHING", "BatchBytes", "PlannedBatch", "Reached", "compare_log", "how_far"]


class Reached(NamedTuple):
    """How far a log has come with the pieces: all before batch ``batch`` of piece ``piece``. ``records`` are
    those of the run that was compared."""

    piece: int
    batch: int
    records: int = 0


NOTHING = Reached(0, 0)


class BatchBytes(NamedTuple):
    """A batch, with its offsets as they stand in it. ``data`` is good until the next one is asked for."""

    first_offset: int
    last_offset: int
    crc: int
    data: memoryview

    @property
    def span(self) -> int:
        return self.last_offset - self.first_offset + 1


class PlannedBatch(NamedTuple):
    """A batch of a piece, and how far the log has come when it has it."""

    batch: BatchBytes
    behind: Reached


def compare_log(
    log: PartitionLog,
    file_system: FileSystem,
    root: str,
    pieces: Sequence[PlannedPiece],
    start: int,
    begun: Reached = NOTHING,
) -> Reached:
    """Return how many of the batches after ``begun`` the log holds from offset ``start`` on, in order."""
    planned = _planned(file_system, root, pieces, begun)
    return how_far(planned, _batches_from(log.view, start), start, begun)


def how_far(
    planned: Iterable[PlannedBatch],
    there: Iterator[BatchBytes],
    start: int,
    begun: Reached = NOTHING,
) -> Reached:
    """Return the last planned batch that is there, whole or compacted, at its planned offset."""
    reached = begun._replace(records=0)
    actual = next(there, None)
    offset = start
    for wanted, behind in planned:
        if actual is None or actual.first_offset < offset:
            break  # the log ends, or continues with records of another writer
        if actual.first_offset == offset:
            if not _is_same(wanted, actual) and not _is_rest_of(wanted, actual):
                break
            reached = behind._replace(records=offset + wanted.span - start)
            actual = next(there, None)
        # Otherwise it is not there. Whether it was, only a later batch can prove.
        offset += wanted.span
    return reached


def _is_same(wanted: BatchBytes, actual: BatchBytes) -> bool:
    return (len(wanted.data), wanted.crc) == (len(actual.data), actual.crc)


def _is_rest_of(wanted: BatchBytes, actual: BatchBytes) -> bool:
    """Return whether a batch is what compaction left of another: some of its records, with its offsets."""
    if wanted.span != actual.span:
        return False
    shift = actual.first_offset - wanted.first_offset
    try:
        left = list(decode_records(actual.data))
    except UnicodeDecodeError:
        return False  # names of headers that are not text were never staged
    had = {record.offset + shift: record for record in decode_records(wanted.data)}
    return bool(left) and all(
        record.offset in had and record == replace(had[record.offset], offset=record.offset)
        for record in left
    )


def _planned(
    file_system: FileSystem, root: str, pieces: Sequence[PlannedPiece], begun: Reached
) -> Iterator[PlannedBatch]:
    """Yield the batches of pieces from ``begun`` on, whatever offsets were stamped on them since."""
    for number in range(begun.piece, len(pieces)):
        piece = pieces[number].piece
        file = open_piece(file_system, root, piece)
        try:
            for at, batch in enumerate(_batches(BatchWindows(file, piece.size_bytes))):
                if (number, at) < begun[:2]:
                    continue
                is_last = at + 1 == piece.batches
                behind = Reached(number + 1, 0) if is_last else Reached(number, at + 1)
                yield PlannedBatch(batch, behind)
        finally:
            file.close()


def _batches_from(view: LogView, offset: int) -> Iterator[BatchBytes]:
    """Yield the batches of a log from the one that holds ``offset`` on, or the first after it."""
    found = view.find(offset) if offset < view.log_end else None
    if found is None:
        return
    first, topic_partition = found
    for number in range(first, len(view.segments)):
        position = topic_partition.position if number == first else 0
        log = view.segments[number].log
        yield from _batches(BatchWindows(log, view.limit(number), position=position))


def _batches(windows: Iterable[BatchWindow]) -> Iterator[BatchBytes]:
    for window in windows:
        rows = window.rows
        for at in range(0, window.batches * ROW_WIDTH, ROW_WIDTH):
            position = rows[at + Row.POSITION]
            yield BatchBytes(
                rows[at + Row.BASE_OFFSET],
                rows[at + Row.LAST_OFFSET],
                rows[at + Row.CRC],
                window.data[position : position + rows[at + Row.SIZE]],
            )
