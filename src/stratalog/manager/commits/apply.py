"""Put pieces into a log: all of them for a commit, the rest for one that was interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from stratalog.manager.commits.compare import Reached
from stratalog.records.layout import ROW_WIDTH, Row
from stratalog.records.restamp import assign_offsets
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.piece_reader import (
    WINDOW_BYTES,
    BatchWindow,
    BatchWindows,
    open_piece,
)
from stratalog.storage.commits.records import CommitMethod, PlannedPiece
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.adoption import StagedFile
from stratalog.storage.names import PieceStage, piece_file_name
from stratalog.storage.partition_log import PartitionLog

__all__ = ["append_rest", "apply_pieces"]

#: How much is copied before its writeback is started.
_BEGIN_BYTES: Final = 8 << 20


def apply_pieces(
    log: PartitionLog,
    file_system: FileSystem,
    root: str,
    pieces: Sequence[PlannedPiece],
    start: int,
) -> None:
    """Append or adopt all pieces as planned, from offset ``start`` on, and wait for the disk.
    OffsetOrderError if the log has other records at these offsets."""
    for planned in pieces:
        is_large = planned.method is CommitMethod.ADOPT
        if not is_large or not _adopt(log, root, planned.piece, start):
            _append(log, file_system, root, planned.piece, start)
        start += planned.piece.records
    log.sync()


def append_rest(
    log: PartitionLog,
    file_system: FileSystem,
    root: str,
    pieces: Sequence[PlannedPiece],
    reached: Reached,
    start: int,
) -> None:
    """Append what is missing, from offset ``start`` on. OffsetOrderError if the log has other records at
    these offsets. Nothing is adopted: a piece may be a segment already, and stamping it again would change
    what readers have open."""
    for number in range(reached.piece, len(pieces)):
        skipped = reached.batch if number == reached.piece else 0
        start = _append(log, file_system, root, pieces[number].piece, start, skipped)
    log.sync()


def _adopt(log: PartitionLog, root: str, piece: Piece, start: int) -> bool:
    link = piece_file_name(piece.parsed_name._replace(stage=PieceStage.LINKED))
    staged = StagedFile(os.path.join(root, piece.name), os.path.join(root, link), piece.size_bytes)
    return log.adopt(staged, leader_epoch=log.latest_epoch, first_offset=start) is not None


def _append(
    log: PartitionLog,
    file_system: FileSystem,
    root: str,
    piece: Piece,
    start: int,
    skipped: int = 0,
) -> int:
    """Append the batches of a piece from the ``skipped``-th on; return the offset after the last.

    Their offsets are counted from ``start``, not taken from the log, which refuses them if it has grown:
    records at other offsets than the journal promises would be appended again by a replay.
    """
    file = open_piece(file_system, root, piece)
    try:
        position = _position_of(BatchWindows(file, piece.size_bytes), skipped)
        windows = BatchWindows(file, piece.size_bytes, position=position)
        begun = position
        while not windows.is_over:
            window = _next_window(windows, log)
            epoch = log.latest_epoch
            start = assign_offsets(window.data, next_offset=start, leader_epoch=epoch)
            log.append_as_follower(window.data)
            # The log has these bytes now. Without this, a commit would take memory twice.
            file.forget(window.position, len(window.data))
            if window.end - begun >= _BEGIN_BYTES:
                log.begin_sync()
                begun = window.end
    finally:
        file.close()
    return start


def _position_of(windows: BatchWindows, batch: int) -> int:
    """Return the position of a batch in its file, or the end of the last one."""
    if batch == 0:
        return 0
    end = 0
    for window in windows:
        if batch < window.batches:
            start: int = window.rows[batch * ROW_WIDTH + Row.POSITION]
            return window.position + start
        batch -= window.batches
        end = window.end
    return end


def _next_window(windows: BatchWindows, log: PartitionLog) -> BatchWindow:
    """Return as many batches as the active segment has room for: segments become as full as if each batch
    had been appended by itself."""
    segment_bytes = log.config.effective_segment_bytes
    room = segment_bytes - log.segments[-1].size_bytes
    window = None
    if room > 0:
        window = windows.take(min(room, WINDOW_BYTES), at_least_one=False)
    if window is None:
        window = windows.take(min(segment_bytes, WINDOW_BYTES))
        assert window is not None
    return window
