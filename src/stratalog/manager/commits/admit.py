"""A piece is looked at before it is promised: what a broker would refuse is refused while nothing is changed.

Where the topic asks for something else than was staged (its own codec, the log's time), the piece is made so
here, in a file of its own. So what is committed is always what is in the piece, but for the offsets, and a
replay needs no more than to compare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from stratalog.errors import CorruptionError, InvalidRecordError, InvalidTimestampError
from stratalog.records.layout import INT64_MAX, ROW_WIDTH, Row
from stratalog.records.restamp import assign_offsets
from stratalog.storage.admission.admit import Admitted, admit_leader
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.commits.piece import (
    NO_DIGEST,
    STAGED_EPOCH,
    Piece,
    add_to_digest,
    check_plain_batch,
)
from stratalog.storage.commits.piece_reader import BatchWindow, checked_windows, open_piece
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import PieceStage, piece_file_name
from stratalog.storage.producers.states import Origin
from stratalog.types import NO_TIMESTAMP

__all__ = ["admit_piece", "prepared_name"]

_ADVICE: Final = "write the batch again: nothing of it was committed"


def admit_piece(
    file_system: FileSystem, root: str, piece: Piece, config: LogConfig, now_ms: int
) -> Piece:
    """The piece that is to be committed: this one, or what the topic asks for in its place, synced.

    CorruptionError where the piece is not what its task has told, InvalidRecordError and its kinds where
    the topic does not take its records.
    """
    admission = _Admission(config, now_ms)
    try:
        file = open_piece(file_system, root, piece)
        try:
            windows = checked_windows(file, piece)
            if admission.rules.changes_batches:
                return _prepared(file_system, root, piece, admission, windows)
            for window in windows:
                admission.check(window)
            return piece
        finally:
            file.close()
    except CorruptionError as error:
        raise _advised(error) from None


class _Admission:
    """What a topic takes."""

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.rules = AppendRules.of(config)
        self._size_max = min(config.max_message_bytes, config.effective_segment_bytes)
        self._now_ms = now_ms
        # Headers do not tell of keys, nor of the earliest time.
        self._looks_deep = self.rules.needs_key or self.rules.before_max_ms < INT64_MAX

    def check(self, window: BatchWindow) -> None:
        self._check_headers(window)
        if self._looks_deep:
            digest = add_to_digest(NO_DIGEST, window.rows, window.batches)
            admitted = self.admit(window)
            if add_to_digest(NO_DIGEST, admitted.rows, admitted.count) != digest:
                raise InvalidRecordError("a batch whose header does not tell what its records are")

    def _check_headers(self, window: BatchWindow) -> None:
        rows = window.rows
        for at in range(0, window.batches * ROW_WIDTH, ROW_WIDTH):
            check_plain_batch(rows, at, self._size_max)
            latest = rows[at + Row.MAX_TIMESTAMP]
            if not self.rules.append_time and latest - self._now_ms > self.rules.after_max_ms:
                raise InvalidTimestampError(
                    f"a record is of {latest}, more than message.timestamp.after.max.ms after now"
                )

    def admit(self, window: BatchWindow) -> Admitted:
        assign_offsets(window.data, next_offset=0, leader_epoch=STAGED_EPOCH)
        return admit_leader(window.data, self.rules, self._now_ms, Origin.CLIENT)

    def changed(self, window: BatchWindow) -> Admitted:
        self._check_headers(window)
        return self.admit(window)


def prepared_name(piece: Piece) -> str:
    """The name of what is made of a piece."""
    return piece_file_name(piece.parsed_name._replace(stage=PieceStage.PREPARED))


def _prepared(
    file_system: FileSystem,
    root: str,
    piece: Piece,
    admission: _Admission,
    windows: Iterator[BatchWindow],
) -> Piece:
    name = prepared_name(piece)
    path = os.path.join(root, name)
    file_system.unlink(path)
    file = file_system.open_writable(path, create=True)
    try:
        size, batches, records, digest, latest = 0, 0, 0, NO_DIGEST, int(NO_TIMESTAMP)
        for window in windows:
            admitted = admission.changed(window)
            _write(file, size, admitted, records)
            rows = admitted.rows
            size += len(admitted.data)
            batches += admitted.count
            records += sum(rows[Row.RECORD_COUNT : admitted.count * ROW_WIDTH : ROW_WIDTH])
            latest = max(latest, admitted.max_timestamp)
            digest = add_to_digest(digest, rows, admitted.count)
        file.sync()
    finally:
        file.close()
    return Piece(piece.topic, piece.partition, name, size, batches, records, latest, digest)


def _write(file: WritableFile, position: int, admitted: Admitted, next_offset: int) -> None:
    admitted.assign(next_offset, STAGED_EPOCH)
    file.write_at(position, admitted.data)


def _advised(error: CorruptionError) -> CorruptionError:
    return CorruptionError(
        error.reason, error.detail, position=error.position, path=error.path, advice=_ADVICE
    )
