"""What may be appended: everything that depends only on the bytes and the topic's configs, before any lock.

A leader's append brings batches whose offsets are nobody's yet; it is checked to the last record, and what
must change in it (append time, codec, format) is changed here. A follower's brings batches that a leader has
admitted before: they are kept as they are. Both become an :class:`Admitted`, ready to be given its offsets.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOrderError,
    StratalogError,
)
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.compression import Decompressor, compress
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_AT,
    CRC_FROM,
    INT32_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Codec,
    Ending,
    Reason,
    Row,
)
from stratalog.records.model import BatchHeader, Record
from stratalog.records.reasons import corruption, describe
from stratalog.records.restamp import set_append_time, set_codec, set_max_timestamp
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producer_entry import Origin
from stratalog.types import NO_TIMESTAMP

__all__ = [
    "Admitted",
    "AppendRules",
    "admit_closely",
    "admit_follower",
    "admit_leader",
    "admit_plain",
]

Bytes = bytes | bytearray | memoryview

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_MAGIC: Final = int(Row.MAGIC)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_BASE_TIMESTAMP: Final = int(Row.BASE_TIMESTAMP)
_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)
_RECORD_COUNT: Final = int(Row.RECORD_COUNT)
_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_BASE_SEQUENCE: Final = int(Row.BASE_SEQUENCE)
_PAYLOAD_POSITION: Final = int(Row.PAYLOAD_POSITION)
_PAYLOAD_SIZE: Final = int(Row.PAYLOAD_SIZE)
_CRC: Final = int(Check.CRC)
_END: Final = int(Ending.END)

_CLIENT: Final = Origin.CLIENT
_NO_ROW: Final = bytes(8 * ROW_WIDTH)
_LEADER_EPOCH: Final = int(Row.LEADER_EPOCH)

_PRODUCER_CODEC: Final = "producer"
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's configs as an append needs them; made once, not for every append."""

    max_message_bytes: int
    needs_key: bool
    append_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: Codec | None  # None: as the producer chose
    level: int | None
    changes_batches: bool  # append time, or a codec of its own

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        codec = None
        level = None
        if config.compression_type != _PRODUCER_CODEC:
            codec = _CODECS[config.compression_type]
            level = {
                Codec.GZIP: config.compression_gzip_level,
                Codec.LZ4: config.compression_lz4_level,
                Codec.ZSTD: config.compression_zstd_level,
            }.get(codec)
            if codec == Codec.GZIP and level == -1:
                level = None
        append_time = config.message_timestamp_type == "LogAppendTime"
        return cls(
            max_message_bytes=config.max_message_bytes,
            needs_key=config.compacts,
            append_time=append_time,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            codec=codec,
            level=level,
            changes_batches=append_time or codec is not None,
        )


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

    def headers(self) -> list[BatchHeader]:
        return [
            BatchHeader.from_row(self.rows[at : at + ROW_WIDTH])
            for at in range(0, self.count * ROW_WIDTH, ROW_WIDTH)
        ]


def admit_plain(
    data: Bytes, rules: AppendRules, now_ms: int
) -> tuple[bytearray | memoryview, array[int]] | None:
    """The short way of a batch in which nothing is to be changed and nothing to be refused, as most are:
    its bytes, as memory that may be written, and its header row. None for every other: the long way
    finds out what it is."""
    return kernel.admit_plain(
        data, rules.max_message_bytes, now_ms, rules.before_max_ms, rules.after_max_ms,
        rules.needs_key,
    )  # fmt: skip


def admit_leader(data: Bytes, rules: AppendRules, now_ms: int, origin: Origin) -> Admitted:
    """Batches from a producer (or a coordinator), checked record by record and made what the topic
    asks for. A ``bytearray`` is changed in place; what cannot be changed is copied.

    InvalidRecordError and its kinds where a record or batch is not legal, CorruptionError where the
    bytes are damaged: then nothing is appended.
    """
    if origin is _CLIENT and not rules.changes_batches:
        plain = admit_plain(data, rules, now_ms)
        if plain is not None:
            return Admitted(plain[0], memoryview(plain[1]), 1, NO_TIMESTAMP)
    return admit_closely(data, rules, now_ms, origin)


def admit_closely(data: Bytes, rules: AppendRules, now_ms: int, origin: Origin) -> Admitted:
    """The long way of ``admit_leader``."""
    own = data if _is_writable(data) else bytearray(data)
    rows, count = _walk(own)
    if count == 0:
        raise InvalidRecordError("an append holds at least one batch")
    if min(rows[_MAGIC : count * ROW_WIDTH : ROW_WIDTH]) < 2:
        own = _converted(own, rules)
        rows, count = _walk(own)
    changed = False
    expected = 0
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        if rows[at + _SIZE] > rules.max_message_bytes:
            raise BatchTooLargeError(
                f"a batch of {rows[at + _SIZE]} bytes is above "
                f"max.message.bytes={rules.max_message_bytes}"
            )
        if origin is _CLIENT:
            _check_client(rows, at, expected)
            expected += rows[at + _RECORD_COUNT]
        codec = rows[at + _ATTRIBUTES] & CODEC_MASK
        is_control = rows[at + _ATTRIBUTES] & CONTROL_MASK
        wanted = codec if rules.codec is None or is_control else rules.codec
        true_max, has_gap = _check_records(own, rows, at, rules, now_ms)
        if codec != wanted or has_gap:
            # The batches behind it move: make this append anew, one batch at a time.
            own = _rebuilt(own, rows, count, rules)
            return _admit_rebuilt(own, rules, now_ms)
        changed |= _stamp_time(own, rows, at, rules, now_ms, true_max)
    if changed:
        rows, count = _walk(own)
    return Admitted(own, rows, count, now_ms if rules.append_time else NO_TIMESTAMP)


def admit_follower(data: Bytes, *, epoch_max: int | None = None) -> Admitted | None:
    """Batches as a leader stored them, CRCs and order checked; a last one that is cut off is left out,
    and so are those from a leader epoch above ``epoch_max`` on. None where nothing is left."""
    rows, count = _walk(data, allow_tail=True)
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
        kept += 1
    if kept == 0:
        return None
    last = (kept - 1) * ROW_WIDTH
    end = rows[last + _POSITION] + rows[last + _SIZE]
    return Admitted(memoryview(data)[:end], rows, kept, NO_TIMESTAMP)


def _is_writable(data: Bytes) -> bool:
    return isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly)


def _walk(data: Bytes, *, allow_tail: bool = False) -> tuple[memoryview, int]:
    """Header rows of all of ``data``, CRCs checked."""
    size = len(data)
    capacity = 1
    while True:
        rows = memoryview(array("q", _NO_ROW * capacity))
        held, reached, ending, reason, _ = kernel.walk(data, 0, size, rows, _CRC, -1, INT32_MAX)
        if ending == _END or (ending == Ending.FULL and reached == size):
            return rows, held
        if ending == Ending.FULL:
            capacity = max(64, capacity * 8)
            continue
        if allow_tail and ending == Ending.INCOMPLETE:
            return rows, held
        raise corruption(reason, reached) if allow_tail else _refusal(data, reached, reason)


#: Of these a producer is guilty, not the way that the bytes took: to send them again would not help.
_MADE_SO: Final = frozenset(
    {
        Reason.OFFSET_RANGE,
        Reason.LEADER_EPOCH_RANGE,
        Reason.UNKNOWN_CODEC,
        Reason.LAST_OFFSET_DELTA_RANGE,
        Reason.RECORD_COUNT_RANGE,
    }
)


def _refusal(data: Bytes, position: int, reason: int) -> StratalogError:
    """The error for a header that cannot be; InvalidRecordError where the batch's CRC is right."""
    with memoryview(data) as whole, whole[position + LOG_OVERHEAD :] as batch:
        if reason in _MADE_SO and batch[MAGIC_AT - LOG_OVERHEAD] == 2:
            size = int.from_bytes(whole[position + SIZE_AT : position + LOG_OVERHEAD], "big")
            crc = int.from_bytes(whole[position + CRC_AT : position + CRC_FROM], "big")
            if crc == kernel.crc32c(whole[position + CRC_FROM : position + LOG_OVERHEAD + size]):
                return InvalidRecordError(f"a batch that is not legal: {describe(reason)}")
    return corruption(reason, position)


def _check_client(rows: memoryview, at: int, expected: int) -> None:
    base_offset, last_offset = rows[at + _BASE_OFFSET], rows[at + _LAST_OFFSET]
    count = rows[at + _RECORD_COUNT]
    if base_offset not in (0, expected):
        raise InvalidRecordError(
            f"a producer's batch starts at offset {base_offset}: it counts from 0, the log gives offsets"
        )
    if count <= 0 or last_offset - base_offset + 1 != count:
        raise InvalidRecordError(
            f"a producer's batch of {count} records with last offset delta {last_offset - base_offset}"
        )
    if rows[at + _ATTRIBUTES] & CONTROL_MASK:
        raise InvalidRecordError("a producer may not write control batches")
    if rows[at + _PRODUCER_ID] >= 0 and rows[at + _BASE_SEQUENCE] < 0:
        raise InvalidRecordError(
            f"producer {rows[at + _PRODUCER_ID]} numbers its batches from {rows[at + _BASE_SEQUENCE]}"
        )


_local = threading.local()


def _decompressor() -> Decompressor:
    """One for each thread: it keeps its buffer."""
    found: Decompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = Decompressor()
    return found


def _payload(data: Bytes, rows: memoryview, at: int) -> memoryview:
    """The records of a batch, decompressed."""
    start = rows[at + _PAYLOAD_POSITION]
    part = memoryview(data)[start : start + rows[at + _PAYLOAD_SIZE]]
    try:
        return _decompressor().decompress(rows[at + _ATTRIBUTES] & CODEC_MASK, part)
    except CorruptionError as error:  # the CRC is right: it was sent so
        raise InvalidRecordError(f"a batch that is not legal: {error.detail}") from None


def _check_records(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> tuple[int, bool]:
    """The batch's true largest timestamp, and whether its records are not numbered 0, 1, 2…"""
    if rows[at + _ATTRIBUTES] & CODEC_MASK:
        payload = _payload(data, rows, at)
        start, end = 0, len(payload)
    else:
        payload = data  # type: ignore[assignment]  # any buffer does
        start = rows[at + _PAYLOAD_POSITION]
        end = start + rows[at + _PAYLOAD_SIZE]
    reason, _, min_timestamp, max_timestamp, _, gap_row, null_key_row = kernel.check_records(
        payload, start, end, rows[at + _RECORD_COUNT], rows[at + _BASE_TIMESTAMP]
    )
    if reason:
        raise InvalidRecordError(f"a batch that is not legal: {describe(reason)}")
    if rules.needs_key and null_key_row >= 0 and not rows[at + _ATTRIBUTES] & CONTROL_MASK:
        raise _refused(data, rows, at, rules, now_ms)
    if rules.append_time:
        if rows[at + _ATTRIBUTES] & APPEND_TIME_MASK:
            raise _says_append_time(rows[at + _RECORD_COUNT])
    elif (
        max_timestamp - now_ms > rules.after_max_ms
        or now_ms - min_timestamp > rules.before_max_ms
        or (rows[at + _ATTRIBUTES] & APPEND_TIME_MASK and min_timestamp <= NO_TIMESTAMP)
    ):
        errors = _timestamp_errors(data, rows, at, rules, now_ms)
        if errors:
            raise _refused(data, rows, at, rules, now_ms)
    return max_timestamp, gap_row >= 0


def _says_append_time(count: int) -> InvalidTimestampError:
    what = "says LogAppendTime: only the log may say that"
    errors = [(row, what) for row in range(count)]
    return InvalidTimestampError(f"a producer's batch {what}", record_errors=errors)


def _records_of(data: Bytes, rows: memoryview, at: int) -> Iterator[Record]:
    start = rows[at + _POSITION]
    return decode_records(bytes(memoryview(data)[start : start + rows[at + _SIZE]]))


def _timestamp_errors(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> list[tuple[int, str]]:
    """Record by record, and by its own timestamp: whether the log would show another does not count."""
    errors = []
    says_append_time = rows[at + _ATTRIBUTES] & APPEND_TIME_MASK
    for row, timestamp in enumerate(_own_timestamps(data, rows, at)):
        if timestamp == NO_TIMESTAMP:
            if says_append_time:
                errors.append((row, "says LogAppendTime, and has no time"))
        elif _java_difference(now_ms, timestamp) > rules.before_max_ms:
            errors.append(
                (row, f"is of {timestamp}, more than message.timestamp.before.max.ms before now")
            )
        elif _java_difference(timestamp, now_ms) > rules.after_max_ms:
            errors.append(
                (row, f"is of {timestamp}, more than message.timestamp.after.max.ms after now")
            )
    return errors


def _java_difference(left: int, right: int) -> int:
    """In 64 bits, as a broker computes it: the earliest of all times is one of the far future."""
    return (left - right + 2**63) % 2**64 - 2**63


def _own_timestamps(data: Bytes, rows: memoryview, at: int) -> Iterator[int]:
    """The timestamps that stand in the records, also where the batch says that another counts."""
    start = rows[at + _POSITION]
    batch = bytearray(memoryview(data)[start : start + rows[at + _SIZE]])
    batch[ATTRIBUTES_AT + 1] &= ~APPEND_TIME_MASK & 0xFF
    return (record.timestamp for record in decode_records(batch, check=Check.INCLUDE_CONTROL))


def _refused(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> InvalidRecordError:
    """The error that names every record at fault; the times win, as in Kafka."""
    late = [] if rules.append_time else _timestamp_errors(data, rows, at, rules, now_ms)
    keyless = []
    if rules.needs_key:
        keyless = [
            (row, "has no key, and the topic is compacted")
            for row, record in enumerate(_records_of(data, rows, at))
            if record.key is None
        ]
    errors = sorted(late + keyless)
    row, what = errors[0]
    kind = InvalidTimestampError if late else InvalidRecordError
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return kind(f"record {row} of the batch {what}{more}", record_errors=errors)


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


def _converted(data: Bytes, rules: AppendRules) -> bytearray:
    """Messages of the old formats as one batch of magic 2, as a broker of today stores them."""
    rows, count = _walk(data)
    magics = {rows[at + _MAGIC] for at in range(0, count * ROW_WIDTH, ROW_WIDTH)}
    if len(magics) > 1:
        raise InvalidRecordError("one append holds messages of different formats")
    codec = Codec.NONE
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        codec = Codec(rows[at + _ATTRIBUTES] & CODEC_MASK) or codec
        if rows[at + _SIZE] > rules.max_message_bytes:
            raise BatchTooLargeError(
                f"a message of {rows[at + _SIZE]} bytes is above "
                f"max.message.bytes={rules.max_message_bytes}"
            )
        if rules.append_time and rows[at + _MAGIC] and rows[at + _ATTRIBUTES] & APPEND_TIME_MASK:
            raise _says_append_time(count)
    if codec and count > 1:
        raise InvalidRecordError("a compressed message comes alone")
    # Their offsets mean nothing yet: some clients send only zeros.
    records = list(decode_records(bytes(data), check=Check.CRC))
    return _built(
        records,
        BatchOptions(codec=rules.codec if rules.codec is not None else codec, level=rules.level),
    )


def _rebuilt(data: Bytes, rows: memoryview, count: int, rules: AppendRules) -> bytearray:
    """Every batch with the codec that the topic asks for, and records numbered 0, 1, 2…"""
    out = bytearray()
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        header = BatchHeader.from_row(rows[at : at + ROW_WIDTH])
        wanted = header.codec if rules.codec is None or header.is_control else rules.codec
        payload = _payload(data, rows, at)
        gap_row = kernel.check_records(
            payload, 0, len(payload), header.record_count, header.base_timestamp
        )[5]
        if gap_row < 0:
            # The records stay byte for byte: only what they are packed in changes.
            start = len(out)
            out += memoryview(data)[header.position : header.position + BATCH_HEADER_SIZE]
            out += payload if not wanted else compress(wanted, payload, level=rules.level)
            set_codec(out, start, wanted)
            continue
        options = BatchOptions(
            codec=wanted,
            level=rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
        out += _built(list(_records_of(data, rows, at)), options)
    return out


def _built(records: list[Record], options: BatchOptions) -> bytearray:
    return bytearray(
        build_batch(
            [Record(each.value, each.key, each.timestamp, each.headers) for each in records],
            options,
        )
    )


def _admit_rebuilt(data: bytearray, rules: AppendRules, now_ms: int) -> Admitted:
    rows, count = _walk(data)
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        if rows[at + _SIZE] > rules.max_message_bytes:
            raise BatchTooLargeError(
                f"a batch is {rows[at + _SIZE]} bytes when it is recompressed: above "
                f"max.message.bytes={rules.max_message_bytes}"
            )
        true_max, _ = _check_records(data, rows, at, rules, now_ms)
        _stamp_time(data, rows, at, rules, now_ms, true_max)
    rows, count = _walk(data)
    return Admitted(data, rows, count, now_ms if rules.append_time else NO_TIMESTAMP)
