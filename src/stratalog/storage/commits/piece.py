"""A piece: record batches of one partition that a task has staged, to be committed with others.

It is a plain file in the root of a log directory, where Kafka leaves files alone that it does not know: whole
batches of magic 2, offsets counted from zero, whatever they will be in the log. A commit gives them their
offsets; base offset and leader epoch lie outside a batch's CRC, so that the CRCs say what a piece is from the
first byte that a task wrote to the last byte in the log.
"""

from __future__ import annotations

import errno
import os
import struct
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import BatchTooLargeError, InvalidRecordError, StorageError, UsageError
from stratalog.records import kernel
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    CONTROL_MASK,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    TRANSACTIONAL_MASK,
    Check,
    Ending,
    Row,
)
from stratalog.records.reasons import corruption
from stratalog.records.restamp import assign_offsets
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import PieceName, check_topic, parse_piece_name, piece_file_name
from stratalog.types import NO_TIMESTAMP, Bytes, TopicPartition

__all__ = [
    "NO_DIGEST",
    "STAGED_EPOCH",
    "Piece",
    "PieceWriter",
    "add_to_digest",
    "check_plain_batch",
    "header_rows",
]


#: What a batch has before it is in a log. Bytes of it and of a true epoch, mixed by a torn write, are one
#: that may be: that is not so of -1.
STAGED_EPOCH: Final = 0
NO_DIGEST: Final = 0

_ROWS_AT_ONCE: Final = 512
_OPEN_FILES_MAX: Final = 128
#: The disk begins with so much at a time, while the next records are made.
_BEGIN_BYTES: Final = 8 << 20
_DIGESTED: Final = struct.Struct(">iI")
_NOT_PLAIN: Final = TRANSACTIONAL_MASK | CONTROL_MASK | APPEND_TIME_MASK


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task tells of a piece that it wrote. ``digest`` is over the sizes and CRCs of its batches, so
    that it stays the same whatever offsets they get."""

    topic: str
    partition: int
    name: str
    size_bytes: int
    batches: int
    records: int
    max_timestamp: int
    digest: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def parsed_name(self) -> PieceName:
        found = parse_piece_name(self.name)
        if found is None:
            raise UsageError(f"{self.name!r} is not the name of a piece")
        return found

    def to_json(self) -> list[Any]:
        """The piece as a list that JSON can carry, without its topic and partition."""
        return [
            self.name,
            self.size_bytes,
            self.batches,
            self.records,
            self.max_timestamp,
            self.digest,
        ]

    @classmethod
    def from_json(cls, topic_partition: TopicPartition, fields: Any) -> Piece:
        """ValueError (or TypeError) where the fields are none of a piece's."""
        name, *numbers = fields
        size_bytes, batches, records, max_timestamp, digest = numbers
        if not all(type(each) is int for each in numbers) or not isinstance(name, str):
            raise ValueError(f"{fields!r} is not a piece")
        if size_bytes <= 0 or not 0 < batches <= records:
            raise ValueError(f"a piece of {size_bytes} bytes, {batches} batches, {records} records")
        if not INT64_MIN <= max_timestamp <= INT64_MAX or not 0 <= digest <= 0xFFFFFFFF:
            raise ValueError(f"a piece of time {max_timestamp} and digest {digest}")
        piece = cls(
            topic_partition.topic,
            topic_partition.partition,
            name,
            size_bytes,
            batches,
            records,
            max_timestamp,
            digest,
        )
        _ = piece.parsed_name
        return piece


def add_to_digest(digest: int, rows: memoryview, count: int) -> int:
    """The digest of a piece with these batches behind it."""
    parts = bytearray(count * _DIGESTED.size)
    for number in range(count):
        at = number * ROW_WIDTH
        _DIGESTED.pack_into(parts, number * _DIGESTED.size, rows[at + Row.SIZE], rows[at + Row.CRC])
    return kernel.crc32c(parts, digest)


def header_rows(data: Bytes) -> Iterator[tuple[memoryview, int]]:
    """The header rows of whole batches, some hundred at a time; each is good until the next. Raises
    CorruptionError where the data is something else."""
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
    at, size = 0, len(data)
    while at < size:
        held, at, ending, reason, _ = kernel.walk(data, at, size, rows, Check.NONE, -1, INT32_MAX)
        if held:
            yield rows, held
        if ending not in (Ending.END, Ending.FULL):
            raise corruption(reason, at)


class PieceWriter:
    """Writes the pieces of one attempt of a task. Not for several threads.

    ``append`` takes finished batches and writes them at once, so that memory stays what the caller's
    batches take. ``finish`` brings everything to the disk and says what there is. After an error, or when
    nothing is to come of it, ``abandon`` removes what was written.
    """

    def __init__(
        self,
        file_system: FileSystem,
        root: str,
        key: CommitKey,
        *,
        task: int,
        attempt: int,
        configs: Mapping[str, LogConfig] | None = None,
    ) -> None:
        """``configs`` are those of the topics, for the sizes that they allow; Kafka's defaults for a topic
        that is not in it. ``attempt`` tells tries of one task apart: no two may have the same."""
        if min(task, attempt) < 0 or max(task, attempt) > INT64_MAX:
            raise UsageError(f"tasks and attempts are counted from 0 on, not {task} and {attempt}")
        self._file_system = file_system
        self._root = root
        self._configs: Mapping[str, LogConfig] = {} if configs is None else configs
        self._name = PieceName(key.owner_digest, key.version, task, attempt, 0)
        self._pieces: list[_PieceInProgress] = []
        self._current: dict[TopicPartition, _PieceInProgress] = {}
        self._open: OrderedDict[str, WritableFile] = OrderedDict()
        self._is_over = False

    @property
    def size_bytes(self) -> int:
        """Of all pieces so far."""
        return sum(each.size_bytes for each in self._pieces)

    def append(self, topic_partition: TopicPartition, batches: Bytes) -> None:
        """Write batches behind those that the partition has already; when a piece has reached
        ``segment.bytes``, into another one. A ``bytearray`` is stamped in place.

        BatchTooLargeError where a batch is above what the topic takes, InvalidRecordError where it is not
        a plain producer's, CorruptionError where it is none."""
        self._check_open()
        data = batches if isinstance(batches, bytearray) else bytearray(batches)
        config = self._configs.get(topic_partition.topic) or LogConfig()
        segment_bytes = config.effective_segment_bytes
        self._is_over = True  # until all of it is written
        piece = self._current.get(topic_partition)
        start = end = 0
        for rows, count in header_rows(data):
            for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
                check_plain_batch(rows, at, min(config.max_message_bytes, segment_bytes))
                size = rows[at + Row.SIZE]
                if piece is None or not piece.takes(rows, at, segment_bytes):
                    self._write(piece, data, start, end)
                    start = end
                    piece = self._begin(topic_partition)
                piece.note(rows, at)
                end += size
        self._write(piece, data, start, end)
        self._is_over = False

    def _write(self, piece: _PieceInProgress | None, data: bytearray, start: int, end: int) -> None:
        if piece is not None and start < end:
            file = self._file(piece.name)
            with memoryview(data) as whole, whole[start:end] as part:
                piece.next_offset = assign_offsets(
                    part, next_offset=piece.next_offset, leader_epoch=STAGED_EPOCH
                )
                file.write_at(piece.written_bytes, part)
                piece.written_bytes += len(part)
            waiting = piece.written_bytes - piece.begun_bytes
            if waiting >= _BEGIN_BYTES:
                file.begin_sync(piece.begun_bytes, waiting)
                piece.begun_bytes = piece.written_bytes

    def _begin(self, topic_partition: TopicPartition) -> _PieceInProgress:
        check_topic(topic_partition.topic)
        if not 0 <= topic_partition.partition <= INT32_MAX:
            raise UsageError(
                f"{topic_partition.topic} has no partition {topic_partition.partition}"
            )
        name = piece_file_name(self._name._replace(number=len(self._pieces)))
        file = self._create(os.path.join(self._root, name))
        piece = self._current[topic_partition] = _PieceInProgress(topic_partition, name)
        self._pieces.append(piece)
        self._keep(name, file)
        return piece

    def _create(self, path: str) -> WritableFile:
        try:
            return self._file_system.open_writable(path, create=True)
        except StorageError as error:
            if error.errno == errno.EEXIST:
                raise UsageError(
                    f"{path} is there already: another attempt of this task has the same number"
                ) from None
            if error.errno != errno.ENOENT:
                raise
        # The first write of all may come before its log directory; another task may be the faster one.
        try:
            self._file_system.make_dir(self._root)
        except StorageError as error:
            if error.errno != errno.EEXIST:
                raise
        with suppress(StorageError):
            parent = os.path.dirname(os.path.normpath(self._root))
            self._file_system.sync_dir(parent or os.curdir)
        return self._file_system.open_writable(path, create=True)

    def _file(self, name: str) -> WritableFile:
        """A piece's file, open: of thousands of partitions not all are so at once."""
        file = self._open.get(name)
        if file is None:
            file = self._file_system.open_writable(os.path.join(self._root, name))
            self._keep(name, file)
        else:
            self._open.move_to_end(name)
        return file

    def _keep(self, name: str, file: WritableFile) -> None:
        self._open[name] = file
        if len(self._open) > _OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()

    def finish(self) -> tuple[Piece, ...]:
        """Bring everything to the disk; the pieces, in the order in which they were begun."""
        self._check_open()
        self._is_over = True
        try:
            for each in self._pieces:
                self._file(each.name).sync()
            if self._pieces:
                self._file_system.sync_dir(self._root)
        finally:
            self._close()
        return tuple(each.piece() for each in self._pieces)

    def abandon(self) -> None:
        """Nothing of this will be committed: remove it, as far as that can be done."""
        self._close()
        for each in self._pieces:
            with suppress(StorageError):
                self._file_system.unlink(os.path.join(self._root, each.name))

    def _close(self) -> None:
        self._is_over = True
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _check_open(self) -> None:
        if self._is_over:
            raise UsageError("these pieces are finished, or failed: begin others")


class _PieceInProgress:
    """A piece that is being written. What is noted of it is written a little later."""

    def __init__(self, topic_partition: TopicPartition, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self.written_bytes = 0
        self.begun_bytes = 0  # of those, what the disk was told to begin with
        self.next_offset = 0
        self._topic_partition = topic_partition
        self._batches = 0
        self._records = 0
        self._max_timestamp = int(NO_TIMESTAMP)
        self._digest = NO_DIGEST

    def takes(self, rows: memoryview, at: int, segment_bytes: int) -> bool:
        """Whether a batch still fits: a piece may become a segment."""
        records = self._records + rows[at + Row.RECORD_COUNT]
        return self.size_bytes + rows[at + Row.SIZE] <= segment_bytes and records <= INT32_MAX

    def note(self, rows: memoryview, at: int) -> None:
        self.size_bytes += rows[at + Row.SIZE]
        self._batches += 1
        self._records += rows[at + Row.RECORD_COUNT]
        self._max_timestamp = max(self._max_timestamp, rows[at + Row.MAX_TIMESTAMP])
        self._digest = add_to_digest(self._digest, rows[at : at + ROW_WIDTH], 1)

    def piece(self) -> Piece:
        return Piece(
            self._topic_partition.topic,
            self._topic_partition.partition,
            self.name,
            self.size_bytes,
            self._batches,
            self._records,
            self._max_timestamp,
            self._digest,
        )


def check_plain_batch(rows: memoryview, at: int, size_max: int) -> None:
    """Whether a batch may be staged: of magic 2, of records that a plain producer sends."""
    size, count = rows[at + Row.SIZE], rows[at + Row.RECORD_COUNT]
    if size > size_max:
        raise BatchTooLargeError(
            f"a batch of {size} bytes is above the {size_max} that it may have"
        )
    if rows[at + Row.MAGIC] != 2:
        raise InvalidRecordError(f"a batch of magic {rows[at + Row.MAGIC]}: pieces are of magic 2")
    if count <= 0 or rows[at + Row.LAST_OFFSET] - rows[at + Row.BASE_OFFSET] + 1 != count:
        raise InvalidRecordError(f"a batch of {count} records whose offsets do not count them")
    if rows[at + Row.PRODUCER_ID] >= 0 or rows[at + Row.ATTRIBUTES] & _NOT_PLAIN:
        raise InvalidRecordError(
            "a batch with a producer id, of a transaction, or that says LogAppendTime: pieces are plain"
        )
