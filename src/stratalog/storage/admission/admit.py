"""What may be appended: everything that depends only on the bytes and the topic's configs, before any lock.

A leader's append brings batches whose offsets are nobody's yet; it is checked to the last record, and what
must change in it (append time, codec, format) is changed here. A follower's brings batches that a leader has
admitted before: they are kept as they are. Both become an :class:`Admitted`, ready to be given its offsets.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias

from stratalog.errors import BatchTooLargeError, InvalidRecordError, OffsetOrderError
from stratalog.records import kernel
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    CONTROL_MASK,
    INT32_MAX,
    INT64_MAX,
    ROW_WIDTH,
    Ending,
    Row,
)
from stratalog.records.model import BatchHeader
from stratalog.records.restamp import set_append_time, set_max_timestamp
from stratalog.storage.admission.checks import check_client, check_records
from stratalog.storage.admission.headers import walk_rows
from stratalog.storage.admission.rebuild import convert_messages, rebuild_batches
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.producers.entry import Origin
from stratalog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Bytes

__all__ = [
    "Admitted",
    "Plain",
    "admit_checked",
    "admit_follower",
    "admit_leader",
    "admit_plain",
]

#: The bytes of one batch, as memory that may be written, and its header row.
Plain: TypeAlias = "tuple[bytearray | memoryview, array[int]]"

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_MAGIC: Final = int(Row.MAGIC)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)
_RECORD_COUNT: Final = int(Row.RECORD_COUNT)
_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_END: Final = int(Ending.END)
_CLIENT: Final = Origin.CLIENT
_LEADER_EPOCH: Final = int(Row.LEADER_EPOCH)


class Admitted:
    """Whole, sound batches: their bytes, which nobody else changes now, and their header rows."""

    __slots__ = (
        "append_time",
        "count",
        "data",
        "has_producer",
        "is_legacy",
        "max_timestamp",
        "rows",
    )

    def __init__(self, data: Bytes, rows: memoryview, count: int, append_time: int) -> None:
        self.data = data
        self.rows = rows
        self.count = count
        self.append_time = append_time
        if count == 1:
            self.max_timestamp = rows[_MAX_TIMESTAMP]
            self.is_legacy = rows[_MAGIC] < 2
            self.has_producer = rows[_PRODUCER_ID] >= 0 or bool(rows[_ATTRIBUTES] & CONTROL_MASK)
            return
        self.has_producer = False
        self.is_legacy = False
        largest = int(NO_TIMESTAMP)
        for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
            if rows[at + _MAX_TIMESTAMP] > largest:
                largest = rows[at + _MAX_TIMESTAMP]
            if rows[at + _PRODUCER_ID] >= 0 or rows[at + _ATTRIBUTES] & CONTROL_MASK:
                self.has_producer = True
            if rows[at + _MAGIC] < 2:
                self.is_legacy = True
        self.max_timestamp = largest

    @classmethod
    def of_plain(cls, plain: Plain) -> Admitted:
        """Return what ``admit_plain`` admitted in the form of every other append."""
        return cls(plain[0], memoryview(plain[1]), 1, NO_TIMESTAMP)

    @property
    def first_offset(self) -> int | None:
        """The first offset; None where only the inside of a wrapper tells."""
        first = self.rows[_BASE_OFFSET]
        return None if self.rows[_MAGIC] < 2 else first

    @property
    def first_batch_last_offset(self) -> int:
        return self.rows[_LAST_OFFSET]

    @property
    def last_offset(self) -> int:
        return self.rows[(self.count - 1) * ROW_WIDTH + _LAST_OFFSET]

    def assign(self, next_offset: int, leader_epoch: int) -> None:
        """Give every batch its offsets and the leader's epoch: 12 bytes each, outside the CRC."""
        data, rows = self.data, self.rows
        assert not isinstance(data, bytes), "what is to be stamped is our own"
        size = len(data)
        _, ending, _, after = kernel.restamp(data, 0, size, next_offset, leader_epoch)
        if ending != _END:
            raise OffsetOrderError(f"no offsets are left: the log ends at {next_offset}")
        if self.count == 1:
            rows[_BASE_OFFSET] = next_offset
            rows[_LAST_OFFSET] = after - 1
            rows[_LEADER_EPOCH] = leader_epoch
        else:
            kernel.walk(data, 0, size, rows, 0, -1, INT32_MAX)

    def take_back(self) -> None:
        """What was not appended has the offsets of nobody again: the caller may bring it once more."""
        kernel.restamp(self.data, 0, len(self.data), 0, NO_LEADER_EPOCH)  # type: ignore[arg-type]

    def set_append_time(self, now_ms: int) -> None:
        """Give every batch another append time than the one that it was admitted with."""
        data, rows = self.data, self.rows
        for at in range(0, self.count * ROW_WIDTH, ROW_WIDTH):
            set_append_time(data, rows[at + _POSITION], now_ms)  # type: ignore[arg-type]
        kernel.walk(data, 0, len(data), rows, 0, -1, INT32_MAX)
        self.append_time = self.max_timestamp = now_ms

    def headers(self) -> list[BatchHeader]:
        return [
            BatchHeader.from_row(self.rows[at : at + ROW_WIDTH])
            for at in range(0, self.count * ROW_WIDTH, ROW_WIDTH)
        ]


def admit_plain(data: Bytes, rules: AppendRules, now_ms: int) -> Plain | None:
    """Admit one batch in which nothing is to be changed and nothing to be refused, as most are: return its
    bytes, as memory that may be written, and its header row. Return None for every other append, which
    ``admit_checked`` admits or refuses."""
    if rules.changes_batches:
        return None
    return kernel.admit_plain(
        data, rules.max_message_bytes, now_ms, rules.before_max_ms, rules.after_max_ms,
        rules.needs_key,
    )  # fmt: skip


def admit_leader(data: Bytes, rules: AppendRules, now_ms: int, origin: Origin) -> Admitted:
    """Batches from a producer (or a coordinator), checked record by record and made what the topic
    asks for. A ``bytearray`` is changed in place, but for the log's append time; what cannot be
    changed is copied.

    InvalidRecordError and its kinds where a record or batch is not legal, CorruptionError where the
    bytes are damaged: then nothing is appended.
    """
    plain = admit_plain(data, rules, now_ms) if origin is _CLIENT else None
    return admit_checked(data, rules, now_ms, origin) if plain is None else Admitted.of_plain(plain)


def admit_checked(data: Bytes, rules: AppendRules, now_ms: int, origin: Origin) -> Admitted:
    """Admit any append as ``admit_leader`` does: every batch is checked before one of them is changed."""
    own = _own_memory(data, rules)
    rows, count = walk_rows(own)
    if count == 0:
        raise InvalidRecordError("an append holds at least one batch")
    if min(rows[_MAGIC : count * ROW_WIDTH : ROW_WIDTH]) < 2:
        own = convert_messages(own, rules)
        rows, count = walk_rows(own)
    true_maxes, is_rebuilt = _check_batches(own, rows, count, rules, now_ms, origin)
    if is_rebuilt:
        own = rebuild_batches(own, rows, count, rules)
        rows, count = walk_rows(own)
        for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
            _check_size(rows, at, rules, " when it is recompressed")
    is_changed = False
    for number, true_max in enumerate(true_maxes):
        is_changed |= _stamp_time(own, rows, number * ROW_WIDTH, rules, now_ms, true_max)
    if is_changed:
        rows, count = walk_rows(own)
    return Admitted(own, rows, count, now_ms if rules.append_time else NO_TIMESTAMP)


def _check_batches(
    data: Bytes, rows: memoryview, count: int, rules: AppendRules, now_ms: int, origin: Origin
) -> tuple[list[int], bool]:
    """The true largest timestamp of each batch, and whether one must be made anew: then the batches
    behind it move, and all of them are made anew, one by one."""
    true_maxes = []
    is_rebuilt = False
    expected = 0
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        is_control = rows[at + _ATTRIBUTES] & CONTROL_MASK
        if not is_control or origin is _CLIENT:  # without its marker a transaction would never end
            _check_size(rows, at, rules)
        if origin is _CLIENT:
            check_client(rows, at, expected)
            expected += rows[at + _RECORD_COUNT]
        codec = rows[at + _ATTRIBUTES] & CODEC_MASK
        wanted = codec if rules.codec is None or is_control else rules.codec
        true_max, has_gap = check_records(data, rows, at, rules, now_ms)
        true_maxes.append(true_max)
        is_rebuilt |= codec != wanted or has_gap
    return true_maxes, is_rebuilt


def _check_size(rows: memoryview, at: int, rules: AppendRules, when: str = "") -> None:
    if rows[at + _SIZE] > rules.max_message_bytes:
        raise BatchTooLargeError(
            f"a batch of {rows[at + _SIZE]} bytes{when} is above "
            f"max.message.bytes={rules.max_message_bytes}"
        )


def admit_follower(data: Bytes, *, epoch_max: int | None = None) -> Admitted | None:
    """Batches as a leader stored them, CRCs and order checked; a last one that is cut off is left out,
    and so are those from a leader epoch above ``epoch_max`` on. None where nothing is left."""
    rows, count = walk_rows(data, allow_tail=True)
    previous = -1
    kept = 0
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        if epoch_max is not None and rows[at + Row.LEADER_EPOCH] > epoch_max:
            break
        if rows[at + _LAST_OFFSET] <= previous:
            raise OffsetOrderError(
                f"a batch that ends at offset {rows[at + _LAST_OFFSET]} follows one that ends at {previous}"
            )
        previous = rows[at + _LAST_OFFSET]
        if previous == INT64_MAX:  # the log would end at an offset that no file can hold
            raise OffsetOrderError(f"no offsets are left after {previous}")
        kept += 1
    if kept == 0:
        return None
    last = (kept - 1) * ROW_WIDTH
    end = rows[last + _POSITION] + rows[last + _SIZE]
    return Admitted(memoryview(data)[:end], rows, kept, NO_TIMESTAMP)


def _own_memory(data: Bytes, rules: AppendRules) -> Bytes:
    """Memory that may be written: a copy, unless the caller's is so. Where the log gives the time it is a
    copy always: a batch with that stamp would be refused if the caller brought it again."""
    is_writable = isinstance(data, bytearray) or (
        isinstance(data, memoryview) and not data.readonly
    )
    return data if is_writable and not rules.append_time else bytearray(data)


def _stamp_time(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int, true_max: int
) -> bool:
    position = rows[at + _POSITION]
    if rules.append_time:
        set_append_time(data, position, now_ms)  # type: ignore[arg-type]
        return True
    if rows[at + _MAX_TIMESTAMP] != true_max or rows[at + _ATTRIBUTES] & APPEND_TIME_MASK:
        set_max_timestamp(data, position, true_max)  # type: ignore[arg-type]
        return True
    return False
