"""Damage of every kind to a small log of all formats: the right records, or a right prefix of them and one
typed ending at the damaged entry. Never a wrong record, never another exception.

The first half flips every bit, cuts at every byte, overwrites every byte. No CRC covers the first 17 bytes
of a batch (12 of a message, none but the payload of a 0.7 entry), so a few flips cannot be told from what a
writer might have written. Each of them is named here, and a flip that is not among them must be found.

The second half lies with the CRC made right: a header or a record that says what cannot be.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stratalog.errors import CorruptionError, LimitExceededError
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.columns import (
    RegionDecoder,
    Selection,
    WalkEnd,
    decode_records,
    records_of,
)
from stratalog.records.compression import compress
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    CRC_FROM,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OFFSET_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
    V07_ATTRIBUTES_AT,
    Check,
    Codec,
    Column,
    Ending,
    Reason,
    TimestampType,
)
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import STRICT, scan_batches
from stratalog.records.v07 import build_entries, build_entry

RECORD_COLUMNS = (
    Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS
)
DEFAULT = Check.CRC | Check.ORDER  # what stratalog.scan checks
CONTIGUOUS = DEFAULT | Check.CONTIGUOUS  # what a log that was never compacted can be held to
INT32_MIN = -(2**31)
HEADERS = (RecordHeader("h", b"x"), RecordHeader("n", None))
BASE = 57  # so that a wrapper ends at 64, and one flip makes its offset 0: "not set"


# --- the log -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch, message or wrapper of the log, and the records that a reader must see of it."""

    position: int
    data: bytes
    records: tuple[Record, ...]
    last_offset: int
    kind: str

    @property
    def magic(self) -> int:
        return self.data[MAGIC_AT]

    @property
    def end(self) -> int:
        return self.position + len(self.data)


class LogWriter:
    """Puts entries one behind the other, their offsets without a gap."""

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self.entries: list[Entry] = []

    @property
    def data(self) -> bytes:
        return b"".join(entry.data for entry in self.entries)

    def add(self, kind: str, data: bytes, records: tuple[Record, ...], offsets: int) -> None:
        self.next_offset += offsets
        position = sum(len(entry.data) for entry in self.entries)
        self.entries.append(Entry(position, data, records, self.next_offset - 1, kind))

    def messages(self, count: int, options: MessageOptions) -> None:
        records = self._records(count, headers=False)
        data = build_messages(records, options)
        seen = tuple(_seen_in_messages(record, options) for record in records)
        if options.codec:
            name = f"magic {options.magic} {options.codec.name}"
            self.add(name, data, seen, count)
            return
        position = 0
        for record in seen:  # plain messages: an entry each
            size = 12 + struct.unpack_from(">i", data, position + SIZE_AT)[0]
            message = data[position : position + size]
            self.add(f"magic {options.magic} plain", message, (record,), 1)
            position += size

    def batch(self, count: int, options: BatchOptions) -> None:
        records = self._records(count, headers=True)
        data = build_batch(records, options)
        self.add(f"magic 2 {options.codec.name}", data, tuple(records), count)

    def empty(self, offsets: int) -> None:
        (header,) = scan_batches(build_batch(self._records(offsets, headers=False)))
        self.add("magic 2 empty", empty_batch(replace(header, leader_epoch=6)), (), offsets)

    def marker(self) -> None:
        data = build_marker(
            ControlType.COMMIT,
            offset=self.next_offset,
            timestamp=1_700_000_000_500,
            producer_id=9,
            producer_epoch=1,
            coordinator_epoch=3,
            leader_epoch=6,
        )
        self.add("magic 2 control", data, (), 1)

    def _records(self, count: int, *, headers: bool) -> list[Record]:
        return [
            Record(
                offset=offset,
                timestamp=1_700_000_000_000 + offset,
                key=None if offset % 5 == 0 else b"k%d" % offset,
                value=None if offset % 7 == 3 else b"value of %d" % offset,
                headers=HEADERS if headers and offset % 3 == 0 else (),
            )
            for offset in range(self.next_offset, self.next_offset + count)
        ]


def _seen_in_messages(record: Record, options: MessageOptions) -> Record:
    if options.magic == 0:
        return replace(record, timestamp=-1, timestamp_type=TimestampType.NONE)
    if options.append_time is None:
        return record
    kind = TimestampType.APPEND_TIME
    return replace(record, timestamp=options.append_time, timestamp_type=kind)


def mixed_log() -> LogWriter:
    log = LogWriter(BASE)
    log.messages(2, MessageOptions(magic=0))
    log.messages(3, MessageOptions(magic=0, codec=Codec.GZIP))
    log.messages(3, MessageOptions(magic=1, codec=Codec.SNAPPY))
    log.messages(2, MessageOptions(magic=1))
    log.messages(3, MessageOptions(magic=1, codec=Codec.LZ4, append_time=1_700_000_099_000))
    log.batch(3, BatchOptions(leader_epoch=5))
    log.batch(3, BatchOptions(codec=Codec.ZSTD, leader_epoch=5))
    log.batch(3, BatchOptions(codec=Codec.LZ4, leader_epoch=0))
    producer = BatchOptions(
        producer_id=9, producer_epoch=1, base_sequence=4, is_transactional=True, leader_epoch=6
    )
    log.batch(2, producer)
    log.marker()
    log.empty(2)
    log.batch(2, BatchOptions(leader_epoch=-1))
    return log


LOG = mixed_log()
DATA = LOG.data
RECORDS = [record for entry in LOG.entries for record in entry.records]
STARTS = [entry.position for entry in LOG.entries]


def test_the_log_holds_what_it_should() -> None:
    kinds = Counter(entry.kind for entry in LOG.entries)
    assert kinds == {
        "magic 0 plain": 2,
        "magic 0 GZIP": 1,
        "magic 1 SNAPPY": 1,
        "magic 1 plain": 2,
        "magic 1 LZ4": 1,
        "magic 2 NONE": 3,
        "magic 2 ZSTD": 1,
        "magic 2 LZ4": 1,
        "magic 2 control": 1,
        "magic 2 empty": 1,
    }
    assert {entry.last_offset for entry in LOG.entries} >= {64}
    assert 1200 < len(DATA) < 2500


class Reader:
    """One decoder for many attempts, as a program reuses it."""

    def __init__(self, check: Check, expected: int = BASE, **options: Any) -> None:
        self.expected = expected
        self.decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, check=check, **options))

    def read(self, log: bytes | bytearray) -> tuple[list[Record], WalkEnd]:
        self.decoder.expect(self.expected)
        pause = self.decoder.decode(log, 0, len(log))
        records = list(records_of(self.decoder.take()))
        while pause.ending == Ending.FULL:
            pause = self.decoder.decode(log, pause.position, len(log))
            records += records_of(self.decoder.take())
        return records, pause


def entry_at(position: int) -> tuple[int, Entry]:
    number = bisect_right(STARTS, position) - 1
    return number, LOG.entries[number]


def records_before(number: int) -> list[Record]:
    return [record for entry in LOG.entries[:number] for record in entry.records]


def flips(data: bytes) -> Iterator[tuple[int, int, bytearray]]:
    """Every (position, bit) and the bytes with it flipped; the same buffer each time."""
    flipped = bytearray(data)
    for position in range(len(data)):
        for bit in range(8):
            flipped[position] ^= 1 << bit
            yield position, bit, flipped
            flipped[position] ^= 1 << bit


def leader_epoch_of(data: bytes | bytearray, entry: Entry) -> int:
    (epoch,) = struct.unpack_from(">i", data, entry.position + LEADER_EPOCH_AT)
    return int(epoch)


def in_leader_epoch(entry: Entry, position: int) -> bool:
    at = position - entry.position
    return entry.magic == 2 and LEADER_EPOCH_AT <= at < LEADER_EPOCH_AT + 4


def offset_field_of(data: bytes | bytearray, entry: Entry) -> int:
    (offset,) = struct.unpack_from(">q", data, entry.position + OFFSET_AT)
    return int(offset)


def test_the_undamaged_log_reads_as_written() -> None:
    for check in (Check.NONE, DEFAULT, CONTIGUOUS, CONTIGUOUS | Check.COUNTS):
        for views in (False, True):
            decoder = RegionDecoder(Selection(columns=Column.OFFSET, check=check, views=views))
            assert decoder.decode(DATA, 0, len(DATA)).ending == Ending.END
        assert Reader(check).read(DATA) == (RECORDS, WalkEnd(len(DATA), Ending.END))


# --- every bit flipped ---------------------------------------------------------------------------


def test_every_flipped_bit_is_found_where_offsets_are_contiguous() -> None:
    """Undetectable in principle is one thing only: a leader epoch of magic 2 that becomes another
    possible one (-1 or above). No CRC covers it, nothing else tells it, and no record depends on it.
    Everything else ends the reading at the flipped entry."""
    reader = Reader(CONTIGUOUS)
    undetected = set()
    wrong: list[tuple[object, ...]] = []
    for position, bit, data in flips(DATA):
        number, entry = entry_at(position)
        records, pause = reader.read(data)
        if pause.ending == Ending.END:
            undetected.add((position, bit))
            if records != RECORDS:
                wrong.append((entry.kind, position - entry.position, bit))
        elif (records, pause.position) != (records_before(number), entry.position):
            wrong.append((entry.kind, position - entry.position, bit, pause))
    assert wrong == []
    undetectable = {
        (position, bit)
        for position, bit, data in flips(DATA)
        if in_leader_epoch(entry := entry_at(position)[1], position)
        and leader_epoch_of(data, entry) >= -1
    }
    surprises = [_named(*flip) for flip in sorted(undetected ^ undetectable)]
    assert surprises == []
    # 31 bits of each epoch that is not negative, and the sign of the one that is -1.
    batches = [entry for entry in LOG.entries if entry.magic == 2]
    assert len(undetected) == 31 * (len(batches) - 1) + 1
    print(f"{8 * len(DATA)} flips, {len(undetected)} undetectable (leader epochs)")


def _named(position: int, bit: int) -> tuple[str, int, int]:
    _, entry = entry_at(position)
    return entry.kind, position - entry.position, bit


def test_every_flipped_bit_under_the_default_checks_changes_at_most_one_offset_field() -> None:
    """Without CONTIGUOUS an offset may lie anywhere above the entry before it. So beside leader epochs
    a flip that raises the offset field of one entry is taken for a gap: the records of that entry come
    with their offsets raised by as much, and nothing else about them changes; then the next entry lies
    below them and ends the reading (offset_order), or the log ends, if the entry was its last. The
    wrapper of magic 0 is the exception: its contents have the offsets, and give the flip away."""
    reader = Reader(DEFAULT)
    wrong: list[tuple[object, ...]] = []
    raised = 0
    for position, bit, data in flips(DATA):
        number, entry = entry_at(position)
        outcome = reader.read(data)
        raised_by = offset_field_of(data, entry) - offset_field_of(DATA, entry)
        if in_leader_epoch(entry, position) and leader_epoch_of(data, entry) >= -1:
            expected = RECORDS, WalkEnd(len(DATA), Ending.END)
        elif raised_by > 0 and entry.kind != "magic 0 GZIP":
            raised += 1
            expected = _with_raised_offsets(number, raised_by)
        else:
            # Whatever names it, the damage is at the flipped entry.
            ending, reason = outcome[1].ending, outcome[1].reason
            if ending == Ending.END:
                wrong.append((entry.kind, position - entry.position, bit, "not found"))
                continue
            detail = outcome[1].detail
            expected = records_before(number), WalkEnd(entry.position, ending, reason, detail)
        if outcome != expected:
            wrong.append((entry.kind, position - entry.position, bit, outcome[1]))
    assert wrong == []
    print(f"{8 * len(DATA)} flips, {raised} raised an offset")
    assert raised > 55 * (len(LOG.entries) - 1)


def _with_raised_offsets(number: int, raised_by: int) -> tuple[list[Record], WalkEnd]:
    entry = LOG.entries[number]
    records = records_before(number) + [
        replace(record, offset=record.offset + raised_by) for record in entry.records
    ]
    if number + 1 == len(LOG.entries):
        return records, WalkEnd(len(DATA), Ending.END)
    following = LOG.entries[number + 1]
    return records, WalkEnd(following.position, Ending.CORRUPT, Reason.OFFSET_ORDER)


@pytest.mark.parametrize("views", [False, True], ids=["copied", "views"])
def test_no_flipped_bit_breaks_a_reader_that_checks_nothing(views: bool) -> None:
    """Records may be wrong then, but the ending is a value and the columns are sound."""
    columns = RECORD_COLUMNS if not views else Column.KEY | Column.VALUE | Column.OFFSET
    decoder = RegionDecoder(Selection(columns=columns, check=Check.NONE, views=views))
    endings = Counter[Ending]()
    for _, _, data in flips(DATA):
        pause = decoder.decode(bytes(data) if views else data, 0, len(data))
        taken = decoder.take()
        endings[pause.ending] += 1
        if pause.ending != Ending.END:
            assert pause.error().reason == pause.reason.name.lower()
        if not views:
            assert len(list(records_of(taken))) == taken.rows
    assert set(endings) == {Ending.END, Ending.INCOMPLETE, Ending.CORRUPT}


def test_strict_header_scans_find_the_same_flips() -> None:
    """A scan of the headers with its CRCs sees what the decoder sees, except inside of what is
    compressed, and wrappers' first offsets: those are the decoder's."""
    wrong: list[tuple[object, ...]] = []
    for position, bit, data in flips(DATA):
        number, entry = entry_at(position)
        scan = scan_batches(data, check=STRICT, expected_offset=BASE)
        headers = list(scan)
        is_epoch = in_leader_epoch(entry, position) and leader_epoch_of(data, entry) >= -1
        is_raised = offset_field_of(data, entry) > offset_field_of(DATA, entry)
        if is_epoch or is_raised:
            continue
        # A wrapper's own offset may fall as far as the first of its messages.
        is_wrapper_offset = entry.magic < 2 and position - entry.position < 8
        if is_wrapper_offset and scan.end.position != entry.position:
            if len(entry.records) == 1:
                wrong.append((entry.kind, position - entry.position, bit))
            continue
        if (len(headers), scan.end.position) != (number, entry.position):
            wrong.append((entry.kind, position - entry.position, bit))
        elif scan.end.error is None:
            wrong.append((entry.kind, position - entry.position, bit, "no error"))
    assert wrong == []


# --- cut, overwritten, zeros behind --------------------------------------------------------------


def test_every_truncation_gives_the_whole_entries_before_it() -> None:
    reader = Reader(CONTIGUOUS)
    for cut in range(len(DATA) + 1):
        records, pause = reader.read(DATA[:cut])
        number = sum(entry.end <= cut for entry in LOG.entries)
        assert records == records_before(number)
        position = LOG.entries[number].position if number < len(LOG.entries) else len(DATA)
        assert pause.position == position
        if cut == position:
            assert pause == WalkEnd(position, Ending.END)
        else:
            zeros = not any(DATA[position:cut]) and cut - position < 17
            reason = Reason.ZERO_TAIL if zeros else Reason.SHORT_TAIL
            assert pause == WalkEnd(position, Ending.INCOMPLETE, reason)


def test_every_truncation_raises_one_typed_error_from_decode_records() -> None:
    for cut in set(range(0, len(DATA), 7)) - set(STARTS):
        found: list[Record] = []
        with pytest.raises(CorruptionError) as caught:
            found.extend(decode_records(DATA[:cut]))
        assert caught.value.reason in ("short_tail", "zero_tail")
        assert caught.value.position == entry_at(cut)[1].position
        assert found == records_before(entry_at(cut)[0])
    for cut in STARTS:
        assert list(decode_records(DATA[:cut])) == records_before(entry_at(cut)[0])


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_every_byte_overwritten_is_found(byte: int) -> None:
    reader = Reader(CONTIGUOUS)
    data = bytearray(DATA)
    for position, old in enumerate(DATA):
        number, entry = entry_at(position)
        data[position] = byte
        records, pause = reader.read(data)
        same = old == byte
        if same or (in_leader_epoch(entry, position) and leader_epoch_of(data, entry) >= -1):
            assert (records, pause.ending) == (RECORDS, Ending.END)
        else:
            assert pause.ending in (Ending.CORRUPT, Ending.INCOMPLETE)
            assert (records, pause.position) == (records_before(number), entry.position)
        data[position] = old


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_everything_overwritten_from_any_byte_on_is_found(byte: int) -> None:
    """As a hole in a file reads: zeros to the end. The entry they start in is torn or wrong."""
    reader = Reader(CONTIGUOUS)
    for cut in range(len(DATA)):
        number, entry = entry_at(cut)
        data = DATA[:cut] + bytes([byte]) * (len(DATA) - cut)
        whole = DATA[cut : entry.end] == data[cut : entry.end]
        records, pause = reader.read(data)
        if whole:  # the entry ended in such bytes anyway
            continue
        assert (records, pause.position) == (records_before(number), entry.position)
        if cut == entry.position:
            wanted = (Ending.INCOMPLETE, Reason.ZERO_TAIL) if byte == 0 else None
            assert wanted is None or (pause.ending, pause.reason) == wanted


def test_zeros_behind_the_log_are_a_torn_tail_of_any_length() -> None:
    reader = Reader(CONTIGUOUS)
    for zeros in [*range(1, 200), 4096, 100_000]:
        records, pause = reader.read(DATA + bytes(zeros))
        assert records == RECORDS
        assert pause == WalkEnd(len(DATA), Ending.INCOMPLETE, Reason.ZERO_TAIL)


def test_one_set_bit_in_the_zeros_behind_the_log_is_no_tail() -> None:
    reader = Reader(CONTIGUOUS)
    for at in range(17, 150):
        tail = bytearray(150)
        tail[at] = 1
        records, pause = reader.read(DATA + tail)
        assert records == RECORDS
        assert pause == WalkEnd(len(DATA), Ending.CORRUPT, Reason.SIZE_TOO_SMALL)


# --- 0.7 -----------------------------------------------------------------------------------------

V07_VALUES = [b"first", b"", b"third value", b"\0\1\2", b"fifth", b"sixth"]


def v07_log() -> list[tuple[bytes, list[bytes]]]:
    """Entries, each with the values in it."""
    return [
        (build_entry(b"first", magic=0), [b"first"]),
        (build_entry(b""), [b""]),
        (build_entries(V07_VALUES, codec=Codec.GZIP), V07_VALUES),
        (build_entry(b"third value"), [b"third value"]),
        (build_entries(V07_VALUES, codec=Codec.SNAPPY), V07_VALUES),
        (build_entry(b"", magic=0), [b""]),
        (build_entry(b"last"), [b"last"]),
    ]


V07 = v07_log()
V07_DATA = b"".join(data for data, _ in V07)
V07_STARTS = [sum(len(data) for data, _ in V07[:i]) for i in range(len(V07))]


class V07Reader:
    def __init__(self, check: Check = DEFAULT) -> None:
        self.decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, check=check))

    def read(self, log: bytes | bytearray) -> tuple[list[tuple[int, bytes | None]], WalkEnd]:
        pause = self.decoder.decode_v07(log, 0, len(log), base_offset=BASE)
        records = list(records_of(self.decoder.take()))
        assert all(record.timestamp == -1 and record.key is None for record in records)
        return [(record.offset, record.value) for record in records], pause


def v07_records(first: int, last: int) -> list[tuple[int, bytes | None]]:
    return [
        (BASE + V07_STARTS[i], value)
        for i in range(first, min(last, len(V07)))
        for value in V07[i][1]
    ]


def test_0_7_every_flipped_bit_is_found_but_for_attributes() -> None:
    """0.7's CRC covers the payload alone. Undetectable in principle, of the attributes of magic 1:

    - six bits that mean nothing: the records are the same;
    - the codec of a wrapper becoming none (its one set bit): the compressed bytes are then one value.

    A length, a magic or a CRC that is off is given away by the CRC over other bytes."""
    reader = V07Reader()
    harmless, unwrapped = 0, 0
    for position, bit, data in flips(V07_DATA):
        number = bisect_right(V07_STARTS, position) - 1
        entry, _ = V07[number]
        at = position - V07_STARTS[number]
        records, pause = reader.read(data)
        is_attributes = entry[4] == 1 and at == V07_ATTRIBUTES_AT
        if is_attributes and bit >= 2:
            assert (records, pause.ending) == (v07_records(0, len(V07)), Ending.END)
            harmless += 1
        elif is_attributes and entry[V07_ATTRIBUTES_AT] == 1 << bit:
            one = [(BASE + V07_STARTS[number], entry[10:])]
            around = v07_records(0, number), v07_records(number + 1, len(V07))
            assert (records, pause.ending) == (around[0] + one + around[1], Ending.END)
            unwrapped += 1
        else:
            assert pause.ending in (Ending.CORRUPT, Ending.INCOMPLETE), (number, at, bit)
            assert pause.position == V07_STARTS[number], (number, at, bit)
            assert records == v07_records(0, number)
    magic_1 = sum(entry[4] == 1 for entry, _ in V07)
    assert (harmless, unwrapped) == (6 * magic_1, 2)


def test_0_7_every_truncation_gives_the_whole_entries_before_it() -> None:
    reader = V07Reader()
    ends = [*V07_STARTS[1:], len(V07_DATA)]
    for cut in range(len(V07_DATA) + 1):
        records, pause = reader.read(V07_DATA[:cut])
        number = sum(end <= cut for end in ends)
        position = V07_STARTS[number] if number < len(V07) else len(V07_DATA)
        assert records == v07_records(0, number)
        assert pause.position == position
        assert (pause.ending == Ending.END) == (cut == position)
        assert pause.ending in (Ending.END, Ending.INCOMPLETE)


def test_0_7_zeros_behind_the_log_are_a_torn_tail_of_any_length() -> None:
    reader = V07Reader()
    for zeros in range(1, 100):
        records, pause = reader.read(V07_DATA + bytes(zeros))
        assert records == v07_records(0, len(V07))
        assert pause == WalkEnd(len(V07_DATA), Ending.INCOMPLETE, Reason.ZERO_TAIL)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_0_7_no_byte_overwritten_breaks_the_reader(byte: int) -> None:
    reader = V07Reader()
    for position in range(len(V07_DATA)):
        data = bytearray(V07_DATA)
        data[position] = byte
        records, pause = reader.read(data)
        number = bisect_right(V07_STARTS, position) - 1
        if pause.ending != Ending.END:
            assert (records, pause.position) == (v07_records(0, number), V07_STARTS[number])
        elif V07_DATA[position] != byte:  # only an attributes byte may change unseen
            assert position - V07_STARTS[number] == V07_ATTRIBUTES_AT
            assert V07[number][0][4] == 1


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (build_entry(b"x")[:-1], Reason.BATCH_TRAILING_BYTES),
        (build_entry(b"x") + b"\0", Reason.BATCH_TRAILING_BYTES),
        (build_entry(b"x") + bytes(9), Reason.BATCH_TRAILING_BYTES),
        (build_entry(b"x")[:-1] + b"y", Reason.CRC_MISMATCH),
        (build_entry(bytes(compress(Codec.GZIP, b"x")), codec=Codec.GZIP), Reason.NESTED_COMPRESSION),
        (struct.pack(">ib", 2, 1) + b"x", Reason.SIZE_TOO_SMALL),
        (struct.pack(">ib", -1, 1) + b"x", Reason.SIZE_TOO_SMALL),
        (struct.pack(">ib", 5, 1) + bytes(4), Reason.SIZE_TOO_SMALL),
        (struct.pack(">ib", 6, 2) + bytes(5), Reason.UNKNOWN_MAGIC),
    ],
)  # fmt: skip
def test_0_7_wrapper_around_what_cannot_be_is_refused(inner: bytes, reason: Reason) -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY):
        wrapper = build_entry(bytes(compress(codec, inner)), codec=codec)
        records, pause = V07Reader().read(V07_DATA + wrapper)
        assert records == v07_records(0, len(V07))
        assert (pause.position, pause.ending, pause.reason) == (
            len(V07_DATA),
            Ending.CORRUPT,
            reason,
        )


# --- lies of a batch header, with the CRC made right ---------------------------------------------

THREE = [
    Record(value=b"value %d" % i, key=b"key", timestamp=1000 + i, offset=10 + i) for i in range(3)
]


def resealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_AT, kernel.crc32c(batch[CRC_FROM:]))
    return bytes(batch)


def with_field(batch: bytes, at: int, code: str, value: int) -> bytes:
    lying = bytearray(batch)
    struct.pack_into(">" + code, lying, at, value)
    return resealed(lying)


def read_one(
    entry: bytes, *, check: Check = DEFAULT, **options: Any
) -> tuple[list[Record], WalkEnd]:
    return Reader(check, -1, **options).read(entry)


def check_refused(entry: bytes, reason: Reason, *, check: Check = DEFAULT) -> None:
    """Refused where it stands, between entries that are read and not read; and by name."""
    before = build_batch([Record(value=b"before", offset=0)])
    records, pause = read_one(before + entry + before, check=check)
    assert [record.value for record in records] == [b"before"]
    assert (pause.position, pause.reason) == (len(before), reason)
    assert pause.ending in (Ending.CORRUPT, Ending.INCOMPLETE)
    with pytest.raises(CorruptionError) as caught:
        list(decode_records(entry))
    assert (caught.value.reason, caught.value.position) == (reason.name.lower(), 0)


def batch_of_three(codec: Codec) -> bytes:
    return build_batch(THREE, BatchOptions(codec=codec))


#: What each field may not be. A size is dealt with below: it says which bytes are the batch.
FORBIDDEN = [
    ("base offset", OFFSET_AT, "q", (-1, -2, INT64_MIN, INT64_MAX, INT64_MAX - 1), Reason.OFFSET_RANGE),
    ("leader epoch", LEADER_EPOCH_AT, "i", (-2, -3, INT32_MIN), Reason.LEADER_EPOCH_RANGE),
    ("magic", MAGIC_AT, "B", (3, 4, 127, 128, 255), Reason.UNKNOWN_MAGIC),
    ("codec", ATTRIBUTES_AT, "h", (5, 6, 7, -1, -32768 + 5), Reason.UNKNOWN_CODEC),
    ("last offset delta", LAST_OFFSET_DELTA_AT, "i", (-1, -2, INT32_MIN), Reason.LAST_OFFSET_DELTA_RANGE),
    ("last offset delta", LAST_OFFSET_DELTA_AT, "i", (0, 1), Reason.RECORD_COUNT_RANGE),
    ("record count", RECORD_COUNT_AT, "i", (-1, -2, INT32_MIN, 4, 5, INT32_MAX), Reason.RECORD_COUNT_RANGE),
    ("record count", RECORD_COUNT_AT, "i", (0, 1, 2), Reason.BATCH_TRAILING_BYTES),
]  # fmt: skip


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.GZIP])
@pytest.mark.parametrize(("name", "at", "code", "values", "reason"), FORBIDDEN)
def test_header_field_that_cannot_be_is_refused(
    name: str, at: int, code: str, values: tuple[int, ...], reason: Reason, codec: Codec
) -> None:
    for value in values:
        check_refused(with_field(batch_of_three(codec), at, code, value), reason)


def unchanged(record: Record, _: int) -> Record:
    return record


def based_at_offset(record: Record, base: int) -> Record:
    return replace(record, offset=base + record.offset - THREE[0].offset)


def based_at_time(record: Record, base: int) -> Record:
    return replace(record, timestamp=base + record.timestamp - THREE[0].timestamp)


#: What a field may be, and what it then means for the records.
ALLOWED: list[tuple[str, int, str, tuple[int, ...], Callable[[Record, int], Record]]] = [
    ("base offset", OFFSET_AT, "q", (0, 1, 2**62, INT64_MAX - 2), based_at_offset),
    ("leader epoch", LEADER_EPOCH_AT, "i", (-1, 0, 1, INT32_MAX), unchanged),
    ("last offset delta", LAST_OFFSET_DELTA_AT, "i", (2, 3, INT32_MAX), unchanged),
    ("base timestamp", BASE_TIMESTAMP_AT, "q", (INT64_MIN, -1, 0, 1, INT64_MAX - 2), based_at_time),
    ("max timestamp", MAX_TIMESTAMP_AT, "q", (INT64_MIN, -1, 0, INT64_MAX), unchanged),
    ("producer id", PRODUCER_ID_AT, "q", (INT64_MIN, -2, -1, 0, INT64_MAX), unchanged),
    ("producer epoch", PRODUCER_EPOCH_AT, "h", (-32768, -1, 0, 32767), unchanged),
    ("base sequence", BASE_SEQUENCE_AT, "i", (INT32_MIN, -2, -1, 0, INT32_MAX), unchanged),
]  # fmt: skip


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("name", "at", "code", "values", "meaning"), ALLOWED)
def test_header_field_at_its_limits_is_read(
    name: str,
    at: int,
    code: str,
    values: tuple[int, ...],
    meaning: Callable[[Record, int], Record],
    codec: Codec,
) -> None:
    for value in values:
        records, pause = read_one(with_field(batch_of_three(codec), at, code, value))
        assert pause.ending == Ending.END, (name, value, pause)
        assert records == [meaning(record, value) for record in THREE], (name, value)


def test_timestamps_wrap_around_as_in_java() -> None:
    batch = with_field(batch_of_three(Codec.NONE), BASE_TIMESTAMP_AT, "q", INT64_MAX - 1)
    records, _ = read_one(batch)
    assert [r.timestamp for r in records] == [INT64_MAX - 1, INT64_MAX, INT64_MIN]


def test_attribute_bits_without_a_meaning_change_nothing() -> None:
    for bit in range(7, 16):
        attributes = (1 << bit) - (1 << 16 if bit == 15 else 0)
        batch = with_field(batch_of_three(Codec.NONE), ATTRIBUTES_AT, "h", attributes)
        assert read_one(batch)[0] == THREE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_plain_records_under_a_codec_are_no_compressed_data(codec: Codec) -> None:
    check_refused(
        with_field(batch_of_three(Codec.NONE), ATTRIBUTES_AT, "h", codec), Reason.COMPRESSED_DATA
    )


def test_sizes_that_cannot_be_are_refused() -> None:
    batch = batch_of_three(Codec.NONE)
    for size in (INT32_MIN, -1, 0, 1, 13, 14, 48):
        check_refused(with_field(batch, SIZE_AT, "i", size), Reason.SIZE_TOO_SMALL)
    for size in (INT32_MAX, INT32_MAX - 12):
        lying = with_field(batch, SIZE_AT, "i", size)
        assert read_one(lying)[1].reason == Reason.SIZE_TOO_LARGE
    for size in (len(batch), 10_000_000):
        lying = with_field(batch, SIZE_AT, "i", size)
        assert read_one(lying)[1] == WalkEnd(0, Ending.INCOMPLETE, Reason.SHORT_TAIL)
    for size in range(49, len(batch) - 12):  # fewer bytes than were sealed
        records, pause = read_one(with_field(batch, SIZE_AT, "i", size))
        fits = size - 49 >= 7 * len(THREE)  # else the count alone cannot be true
        reason = Reason.CRC_MISMATCH if fits else Reason.RECORD_COUNT_RANGE
        assert (records, pause) == ([], WalkEnd(0, Ending.CORRUPT, reason))


def test_every_shorter_size_with_its_own_crc_is_refused() -> None:
    """The CRC is right for the bytes that the size names: then the records do not fit."""
    batch = batch_of_three(Codec.NONE)
    for size in range(49, len(batch) - 12):
        lying = bytearray(batch[: size + 12])
        struct.pack_into(">i", lying, SIZE_AT, size)
        records, pause = read_one(resealed(lying))
        assert records == []
        assert pause.ending == Ending.CORRUPT
        assert pause.reason in (
            Reason.RECORD_COUNT_RANGE,
            Reason.RECORD_LENGTH,
            Reason.VARINT,
        )


def test_a_batch_above_the_configured_size_is_a_limit() -> None:
    batch = batch_of_three(Codec.NONE)
    _, pause = read_one(batch, max_batch_bytes=len(batch) - 1)
    assert (pause.ending, pause.reason) == (Ending.CORRUPT, Reason.SIZE_TOO_LARGE)
    assert isinstance(pause.error(), LimitExceededError)
    assert read_one(batch, max_batch_bytes=len(batch))[0] == THREE


# --- lies of records -----------------------------------------------------------------------------


def varint(value: int, *, padded: int = 0) -> bytes:
    """Zigzag varint, in at least ``padded`` bytes."""
    raw = (value << 1 ^ value >> 63) & (2**64 - 1)
    out = bytearray()
    while raw >= 0x80 or len(out) + 1 < padded:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """A record piece by piece; each piece is the bytes that stand there."""

    attributes: bytes = b"\0"
    timestamp: bytes = varint(5)
    offset: bytes = varint(1)
    key: bytes = varint(1) + b"k"
    value: bytes = varint(1) + b"v"
    headers: bytes = varint(1) + varint(1) + b"h" + varint(1) + b"x"
    trailing: bytes = b""
    length: int | bytes | None = None  # an int is added to the true length

    def encode(self) -> bytes:
        body = self.attributes + self.timestamp + self.offset
        body += self.key + self.value + self.headers + self.trailing
        match self.length:
            case bytes():
                return self.length + body
            case int():
                return varint(len(body) + self.length) + body
            case _:
                return varint(len(body)) + body


def batch_around(records: bytes, count: int, codec: Codec, last_offset_delta: int = 1) -> bytes:
    payload = records if codec == Codec.NONE else bytes(compress(codec, records))
    # base offset, size, leader epoch, magic, crc, attributes, last offset delta,
    # base and max timestamp, producer id, epoch and sequence, record count
    fields = 10, 49 + len(payload), 0, 2, 0, codec, last_offset_delta, 1000, 1005, -1, -1, -1, count
    batch = bytearray(struct.pack(">qiibIhiqqqhii", *fields) + payload)
    return resealed(batch)


FIRST = Lie(offset=varint(0)).encode()

LIES = {
    "length one too long": (Lie(length=1), Reason.RECORD_LENGTH),
    "length one too short": (Lie(length=-1), Reason.FIELD_LENGTH),
    "length zero": (Lie(length=b"\0"), Reason.RECORD_LENGTH),
    "length negative": (Lie(length=varint(-1)), Reason.RECORD_LENGTH),
    "length smallest": (Lie(length=varint(INT32_MIN)), Reason.RECORD_LENGTH),
    "length largest": (Lie(length=varint(INT32_MAX)), Reason.RECORD_LENGTH),
    "length of six bytes": (Lie(length=varint(20, padded=6)), Reason.VARINT),
    "length that never ends": (Lie(length=b"\xff" * 30), Reason.VARINT),
    "timestamp of eleven bytes": (Lie(timestamp=varint(5, padded=11)), Reason.VARINT),
    "offset of six bytes": (Lie(offset=varint(1, padded=6)), Reason.VARINT),
    "offset negative": (Lie(offset=varint(-1)), Reason.OFFSET_DELTA_RANGE),
    "offset behind the batch": (Lie(offset=varint(2)), Reason.OFFSET_DELTA_RANGE),
    "offset largest": (Lie(offset=varint(INT32_MAX)), Reason.OFFSET_DELTA_RANGE),
    "offset smallest": (Lie(offset=varint(INT32_MIN)), Reason.OFFSET_DELTA_RANGE),
    "key size -2": (Lie(key=varint(-2)), Reason.FIELD_LENGTH),
    "key size smallest": (Lie(key=varint(INT32_MIN)), Reason.FIELD_LENGTH),
    "key size largest": (Lie(key=varint(INT32_MAX)), Reason.FIELD_LENGTH),
    "key longer than the record": (Lie(key=varint(40) + b"k"), Reason.FIELD_LENGTH),
    "key size of six bytes": (Lie(key=varint(1, padded=6) + b"k"), Reason.VARINT),
    "value size -2": (Lie(value=varint(-2)), Reason.FIELD_LENGTH),
    "value size smallest": (Lie(value=varint(INT32_MIN)), Reason.FIELD_LENGTH),
    "value longer than the record": (Lie(value=varint(40) + b"v"), Reason.FIELD_LENGTH),
    "no headers field": (Lie(headers=b""), Reason.VARINT),
    "header count -1": (Lie(headers=varint(-1)), Reason.HEADER_COUNT),
    "header count smallest": (Lie(headers=varint(INT32_MIN)), Reason.HEADER_COUNT),
    "header count largest": (Lie(headers=varint(INT32_MAX)), Reason.HEADER_COUNT),
    "header count above what fits": (Lie(headers=varint(3) + b"\2h\2x"), Reason.HEADER_COUNT),
    "header count one too large": (Lie(headers=varint(2) + b"\2h\2x"), Reason.VARINT),
    "header count zero before headers": (Lie(headers=varint(0) + b"\2h\2x"), Reason.RECORD_TRAILING_BYTES),
    "header key null": (Lie(headers=varint(1) + varint(-1) + varint(1) + b"x"), Reason.HEADER_KEY_NULL),
    "header key size -2": (Lie(headers=varint(1) + varint(-2) + b"\2x"), Reason.FIELD_LENGTH),
    "header key too long": (Lie(headers=varint(1) + varint(9) + b"h\2x"), Reason.FIELD_LENGTH),
    "header value size -2": (Lie(headers=varint(1) + b"\2h" + varint(-2)), Reason.FIELD_LENGTH),
    "header value too long": (Lie(headers=varint(1) + b"\2h" + varint(2) + b"x"), Reason.FIELD_LENGTH),
    "bytes behind the headers": (Lie(trailing=b"\0"), Reason.RECORD_TRAILING_BYTES),
}  # fmt: skip


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("name", LIES)
def test_record_that_lies_is_refused(name: str, codec: Codec) -> None:
    """The second record of the batch lies; none of the batch is shown then, not even the first."""
    lie, reason = LIES[name]
    check_refused(batch_around(FIRST + lie.encode(), 2, codec), reason)


TRUTHS = {
    "varints longer than needed": Lie(
        timestamp=varint(5, padded=10),
        offset=varint(1, padded=5),
        key=varint(1, padded=5) + b"k",
        value=varint(1, padded=5) + b"v",
        headers=varint(1, padded=5) + varint(1, padded=5) + b"h" + varint(1, padded=5) + b"x",
    ),
    "attributes that mean nothing": Lie(attributes=b"\xff"),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@pytest.mark.parametrize("name", TRUTHS)
def test_record_in_an_odd_but_legal_form_is_read(name: str, codec: Codec) -> None:
    records, pause = read_one(batch_around(FIRST + TRUTHS[name].encode(), 2, codec))
    assert pause.ending == Ending.END
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
        (10, 1005, b"k", b"v"),
        (11, 1005, b"k", b"v"),
    ]
    assert {record.headers for record in records} == {(RecordHeader("h", b"x"),)}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_counts_that_differ_from_the_records_are_refused(codec: Codec) -> None:
    records = b"".join(Lie(offset=varint(i)).encode() for i in range(10))
    for count, reason in [
        (0, Reason.BATCH_TRAILING_BYTES),
        (9, Reason.BATCH_TRAILING_BYTES),
        (11, Reason.VARINT),
        (12, Reason.VARINT),
        (1000, Reason.RECORD_COUNT_RANGE),
        (INT32_MAX, Reason.RECORD_COUNT_RANGE),
    ]:
        delta = INT32_MAX
        check_refused(batch_around(records, count, codec, last_offset_delta=delta), reason)
    assert len(read_one(batch_around(records, 10, codec, last_offset_delta=9))[0]) == 10


def test_strict_header_scans_check_counts_of_plain_batches() -> None:
    records = b"".join(Lie(offset=varint(i)).encode() for i in range(10))
    for count, reason in [
        (9, Reason.BATCH_TRAILING_BYTES),
        (11, Reason.VARINT),
        (10, Reason.NONE),
    ]:
        batch = batch_around(records, count, Codec.NONE, last_offset_delta=20)
        assert scan_batches(batch, check=STRICT).end.reason == reason
        assert scan_batches(batch).end.reason == Reason.NONE  # not looked at without being asked


def test_every_cut_inside_the_compressed_records_is_refused() -> None:
    whole = b"".join(Lie(offset=varint(i)).encode() for i in range(4))
    for codec in (Codec.NONE, Codec.ZSTD):
        for cut in range(len(whole)):
            records, pause = read_one(batch_around(whole[:cut], 4, codec, last_offset_delta=3))
            assert records == []
            assert pause.ending == Ending.CORRUPT


# --- lies of messages and wrappers ---------------------------------------------------------------


def message(
    offset: int,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    key_size: int | None = None,
    value_size: int | None = None,
    size: int | None = None,
    spoil_crc: bool = False,
) -> bytes:
    body = struct.pack(">BB", magic, attributes)
    body += struct.pack(">q", timestamp) if magic == 1 else b""
    for part, lie in ((key, key_size), (value, value_size)):
        true_size = -1 if part is None else len(part)
        body += struct.pack(">i", true_size if lie is None else lie) + (part or b"")
    crc = kernel.crc32(body) ^ spoil_crc
    return struct.pack(">qiI", offset, 4 + len(body) if size is None else size, crc) + body


def wrapper(
    inner: bytes, *, offset: int = 1, magic: int = 1, codec: Codec = Codec.GZIP, **lies: Any
) -> bytes:
    value = bytes(compress(codec, inner, magic=magic))
    return message(offset, magic=magic, attributes=codec, key=None, value=value, **lies)


PAIR = message(0) + message(1)

PLAIN_LIES = {
    "key size -2": (message(1, key_size=-2), Reason.FIELD_LENGTH),
    "key size smallest": (message(1, key_size=INT32_MIN), Reason.FIELD_LENGTH),
    "key size largest": (message(1, key_size=INT32_MAX), Reason.FIELD_LENGTH),
    "key null but there": (message(1, key_size=-1), Reason.FIELD_LENGTH),
    "key longer than the message": (message(1, key_size=7), Reason.FIELD_LENGTH),
    "value size -2": (message(1, value_size=-2), Reason.FIELD_LENGTH),
    "value size smallest": (message(1, value_size=INT32_MIN), Reason.FIELD_LENGTH),
    "value one too long": (message(1, value_size=2), Reason.FIELD_LENGTH),
    "value one too short": (message(1, value_size=0), Reason.RECORD_TRAILING_BYTES),
    "value null but there": (message(1, value_size=-1), Reason.RECORD_TRAILING_BYTES),
    "offset negative": (message(-1), Reason.OFFSET_RANGE),
    "crc off by one": (message(1, spoil_crc=True), Reason.CRC_MISMATCH),
    "zstd": (message(1, attributes=4), Reason.UNKNOWN_CODEC),
    "codec 7": (message(1, attributes=7), Reason.UNKNOWN_CODEC),
    "size below magic 1's least": (message(1, key=None, value=None, size=21), Reason.SIZE_TOO_SMALL),
}  # fmt: skip

WRAPPER_LIES = {
    "nothing inside": (wrapper(b""), Reason.EMPTY_WRAPPER),
    "no value": (message(1, attributes=1, value=None), Reason.EMPTY_WRAPPER),
    "an empty value": (message(1, attributes=1, value=b""), Reason.EMPTY_WRAPPER),
    "not compressed": (message(1, attributes=1, value=PAIR), Reason.COMPRESSED_DATA),
    "a partial message": (wrapper(PAIR[:-1]), Reason.RECORD_LENGTH),
    "less than a message": (wrapper(PAIR + bytes(25)), Reason.BATCH_TRAILING_BYTES),
    "zeros behind": (wrapper(PAIR + bytes(40)), Reason.RECORD_LENGTH),
    "a wrapper inside": (wrapper(wrapper(PAIR)), Reason.NESTED_COMPRESSION),
    "a codec inside": (wrapper(message(1, attributes=3)), Reason.NESTED_COMPRESSION),
    "a batch inside": (wrapper(build_batch(THREE), offset=10), Reason.UNKNOWN_MAGIC),
    "inner crc": (
        wrapper(message(0) + message(1, spoil_crc=True), offset=5),
        Reason.CRC_MISMATCH,
    ),
    "inner key size": (wrapper(message(1, key_size=-2)), Reason.FIELD_LENGTH),
    "inner value size": (wrapper(message(1, value_size=9)), Reason.FIELD_LENGTH),
    "inner value short": (wrapper(message(1, value_size=0)), Reason.RECORD_TRAILING_BYTES),
    "inner size negative": (wrapper(message(1, size=-1)), Reason.RECORD_LENGTH),
    "inner size largest": (wrapper(message(1, size=INT32_MAX)), Reason.RECORD_LENGTH),
    "inner offset negative": (wrapper(message(-1) + message(1)), Reason.OFFSET_RANGE),
    "inner offsets fall": (wrapper(message(2) + message(1)), Reason.OFFSET_RANGE),
    "inner offset above the last": (
        wrapper(message(0) + message(5) + message(1), offset=9),
        Reason.OFFSET_RANGE,
    ),
    "wrapper offset below the last": (wrapper(message(0) + message(2)), Reason.WRAPPER_OFFSET),
    "magic 0 wrapper offset differs": (
        wrapper(message(0, magic=0) + message(1, magic=0), magic=0, offset=2),
        Reason.WRAPPER_OFFSET,
    ),
    "wrapper value size lies": (wrapper(PAIR, value_size=3), Reason.FIELD_LENGTH),
    "wrapper key size lies": (wrapper(PAIR, key_size=-2), Reason.FIELD_LENGTH),
}


@pytest.mark.parametrize("name", [*PLAIN_LIES, *WRAPPER_LIES])
def test_message_that_lies_is_refused(name: str) -> None:
    data, reason = (PLAIN_LIES | WRAPPER_LIES)[name]
    check_refused(data, reason)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_every_cut_inside_a_wrapper_is_refused(magic: int, codec: Codec) -> None:
    inner = message(7, magic=magic) + message(8, magic=magic) + message(9, magic=magic)
    third = len(inner) // 3
    for cut in range(len(inner) + 1):
        whole, partial = divmod(cut, third)
        data = wrapper(inner[:cut], magic=magic, codec=codec, offset=6 + whole)
        records, pause = read_one(data)
        if partial or not whole:
            assert (records, pause.ending) == ([], Ending.CORRUPT)
        else:
            assert [record.offset for record in records] == [7, 8, 9][:whole]


# --- bombs ---------------------------------------------------------------------------------------

BOMB_SIZE = 64 << 20
LIMIT = 1 << 20


def bomb(codec: Codec, magic: int) -> bytes:
    zeros = bytes(BOMB_SIZE)
    if magic == 2:
        return batch_around(zeros, 1, codec)
    return wrapper(zeros, codec=codec, magic=magic)


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(2, Codec.GZIP), (2, Codec.SNAPPY), (2, Codec.LZ4), (2, Codec.ZSTD),
     (1, Codec.GZIP), (1, Codec.SNAPPY), (1, Codec.LZ4), (0, Codec.LZ4)],
)  # fmt: skip
def test_payload_above_the_limit_is_a_limit_and_not_decompressed(magic: int, codec: Codec) -> None:
    before = build_batch([Record(value=b"before", offset=0)])
    data = before + bomb(codec, magic)
    records, pause = read_one(data, max_decompressed_bytes=LIMIT)
    assert [record.value for record in records] == [b"before"]
    assert (pause.position, pause.ending) == (len(before), Ending.CORRUPT)
    assert pause.reason == Reason.DECOMPRESSED_TOO_LARGE
    assert isinstance(pause.error(), LimitExceededError)
    assert str(LIMIT) in str(pause.error())
    with pytest.raises(LimitExceededError):
        list(decode_records(data, Selection(columns=RECORD_COLUMNS, max_decompressed_bytes=LIMIT)))


def test_0_7_payload_above_the_limit_is_a_limit() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY):
        data = build_entry(bytes(compress(codec, bytes(BOMB_SIZE))), codec=codec)
        decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, max_decompressed_bytes=LIMIT))
        pause = decoder.decode_v07(data, 0, len(data))
        assert (pause.ending, pause.reason) == (Ending.CORRUPT, Reason.DECOMPRESSED_TOO_LARGE)


def test_payload_at_the_limit_is_read() -> None:
    record = Record(value=bytes(100_000), offset=0)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = build_batch([record], BatchOptions(codec=codec))
        size = len(build_batch([record])) - 61
        assert read_one(batch, max_decompressed_bytes=size)[0] == [record]
        assert read_one(batch, max_decompressed_bytes=size - 1)[1].reason == (
            Reason.DECOMPRESSED_TOO_LARGE
        )
