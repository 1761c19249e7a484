"""Producer snapshots: Kafka's bytes and Kafka's order, and every damage found."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.storage.producers.entry import ProducerBatch, ProducerEntry
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot, table_order
from tests.judges.peers.golden import GOLDEN_DIR, GoldenSet, golden_sets
from tests.storage.producers.producer_batches import T

EMPTY = bytes.fromhex("0001 48674bc7 00000000")
TWO = bytes.fromhex(
    "0001 36ec03b3 00000002 0000000000000007 0003 00000018 0000000000000068 00000004"
    "0000018bcfe56800 00000005 0000000000000064 0000000000000008 0000 ffffffff ffffffffffffffff"
    "00000000 0000018bcfe56800 ffffffff ffffffffffffffff"
)
TWO_ENTRIES = [
    ProducerEntry(7, 3, (ProducerBatch(24, 104, 4, T),), 5, T, 100),
    ProducerEntry(8, 0, (), -1, T, None),
]
FILES = sorted(GOLDEN_DIR.rglob("*.snapshot"))


def test_kafkas_bytes() -> None:
    assert encode_snapshot([]) == EMPTY
    assert decode_snapshot(EMPTY) == []
    assert encode_snapshot(TWO_ENTRIES) == TWO
    assert decode_snapshot(TWO) == TWO_ENTRIES
    assert decode_snapshot(memoryview(TWO)) == TWO_ENTRIES


def test_only_the_last_batch_is_kept() -> None:
    batches = tuple(ProducerBatch(i, 100 + i, 0, T) for i in range(5))
    entry = ProducerEntry(7, 3, batches, 5, T + 9, None)
    (kept,) = decode_snapshot(encode_snapshot([entry]))
    # The file has one timestamp for both, the producer's own.
    assert kept == entry._replace(batches=(batches[-1]._replace(timestamp=T + 9),))


def test_golden_files_come_back_as_they_were_in_kafkas_order() -> None:
    with_several = 0
    for path in FILES:
        entries = decode_snapshot(path.read_bytes())
        assert encode_snapshot(entries) == path.read_bytes()
        assert table_order(sorted(entries)) == entries, path
        with_several += len(entries) > 1
    assert len(FILES) > 150
    assert with_several >= 15


# --- what dump-log says of the same files --------------------------------------------------------

_LINE = re.compile(
    r"producerId: (\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: "
    r"OptionalLong(?:\.empty|\[(\d+)\]) lastTimestamp: (-?\d+)"
    r"(?: firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (\d+) "
    r"offsetDelta: (\d+) timestamp: (-?\d+))?"
)


def dumped(golden: GoldenSet) -> Iterator[tuple[Path, list[tuple[str | None, ...]]]]:
    path: Path | None = None
    rows: list[tuple[str | None, ...]] = []
    for line in (golden.path / "dump-snapshot.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("Dumping "):
            if path is not None:
                yield path, rows
            path, rows = golden.path / line.removeprefix("Dumping "), []
        else:
            match = _LINE.fullmatch(line)
            assert match is not None, line
            rows.append(match.groups())
    if path is not None:
        yield path, rows


def shown(entry: ProducerEntry) -> tuple[str | None, ...]:
    numbers = [
        *(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.txn_first_offset),
        entry.last_timestamp,
    ]
    if entry.batches:
        batch = entry.batches[-1]
        numbers += [batch.first_sequence, *batch]
    else:
        numbers += [None] * 5
    return tuple(None if number is None else str(number) for number in numbers)


def test_entries_equal_the_dump() -> None:
    entries = 0
    for golden in golden_sets("v2-"):
        for path, rows in dumped(golden):
            assert [shown(entry) for entry in decode_snapshot(path.read_bytes())] == rows, path
            entries += len(rows)
    assert entries >= 70


# --- damage --------------------------------------------------------------------------------------


def sealed(body: bytes, *, version: int = 1) -> bytes:
    """A file of this body with the right CRC."""
    return struct.pack(">hI", version, kernel.crc32c(body)) + body


def of_fields(**changed: int) -> bytes:
    fields = {
        "producer_id": 7,
        "epoch": 0,
        "last_sequence": 4,
        "last_offset": 14,
        "offset_delta": 4,
        "timestamp": T,
        "coordinator_epoch": -1,
        "open_since": -1,
    }
    return struct.pack(">qhiqiqiq", *(fields | changed).values())


def snapshot_of(*entries: bytes) -> bytes:
    return sealed(struct.pack(">i", len(entries)) + b"".join(entries))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "snapshot_size"),
        (EMPTY[:9], "snapshot_size"),
        (sealed(EMPTY[6:], version=0), "snapshot_version"),
        (sealed(EMPTY[6:], version=2), "snapshot_version"),
        (TWO[:-1], "snapshot_crc"),
        (TWO + b"\0", "snapshot_crc"),  # what a shorter one written over a longer one leaves
        (EMPTY + TWO[10:], "snapshot_crc"),
        (sealed(struct.pack(">i", -1)), "snapshot_size"),
        (sealed(struct.pack(">i", 2**31 - 1)), "snapshot_size"),
        (sealed(struct.pack(">i", 2) + of_fields()), "snapshot_size"),
        (sealed(struct.pack(">i", 0) + of_fields()), "snapshot_size"),
        (snapshot_of(of_fields(), of_fields()), "snapshot_entry"),
        (snapshot_of(of_fields(producer_id=-1)), "snapshot_entry"),
        (snapshot_of(of_fields(last_sequence=-2)), "snapshot_entry"),
        (snapshot_of(of_fields(offset_delta=-1)), "snapshot_entry"),
        (snapshot_of(of_fields(offset_delta=15)), "snapshot_entry"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_snapshot(data)
    assert caught.value.reason == reason


def test_the_place_of_a_bad_entry_is_told() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_snapshot(snapshot_of(of_fields(producer_id=6), of_fields(offset_delta=-1)))
    assert caught.value.position == 56


def test_what_kafka_takes_for_absent_is_absent() -> None:
    entry = of_fields(last_offset=-5, last_sequence=-9, offset_delta=-9, open_since=-7)
    (read,) = decode_snapshot(snapshot_of(entry))
    assert (read.batches, read.txn_first_offset) == ((), None)


def test_every_flipped_bit_is_found() -> None:
    for bit in range(8 * len(TWO)):
        damaged = bytearray(TWO)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptionError):
            decode_snapshot(damaged)


def test_every_cut_is_found() -> None:
    for size in range(len(TWO)):
        with pytest.raises(CorruptionError):
            decode_snapshot(TWO[:size])


@given(st.binary(max_size=160))
def test_any_body_gives_entries_or_one_error(body: bytes) -> None:
    for data in (body, sealed(body)):
        try:
            entries = decode_snapshot(data)
        except CorruptionError:
            continue
        assert 10 + 46 * len(entries) == len(data)


int16, int32, int64 = (
    st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64)
)
offsets = st.integers(0, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    timestamp, last_offset = draw(int64), draw(offsets)
    delta = draw(st.integers(0, min(last_offset, 2**31 - 1)))
    batch = ProducerBatch(draw(st.integers(-1, 2**31 - 1)), last_offset, delta, timestamp)
    return ProducerEntry(
        *(
            draw(offsets),
            draw(int16),
            draw(st.sampled_from([(), (batch,)])),
            draw(int32),
            timestamp,
        ),
        draw(st.none() | offsets),
    )


@given(st.lists(entries(), unique_by=lambda entry: entry.producer_id, max_size=40))
def test_what_is_written_is_read(written: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(written)) == written


# --- order ---------------------------------------------------------------------------------------


def named(*producer_ids: int) -> list[ProducerEntry]:
    return [ProducerEntry(producer_id, 0, (), -1, T, None) for producer_id in producer_ids]


def ids(in_order: list[ProducerEntry]) -> list[int]:
    return [entry.producer_id for entry in in_order]


def test_order_is_by_slot_and_then_first_come() -> None:
    assert ids(table_order(named(3, 2, 1))) == [1, 2, 3]
    # Sixteen slots up to twelve entries: 17 falls where 1 is.
    assert ids(table_order(named(17, 2, 1))) == [17, 1, 2]
    assert ids(table_order(named(1, 2, 17))) == [1, 17, 2]
    twelve = [*range(2, 12), 17, 1]
    assert ids(table_order(named(*twelve)))[:2] == [17, 1]
    assert ids(table_order(named(*twelve, 12)))[-1] == 17


def test_order_of_high_ids_folds_all_their_bits() -> None:
    assert ids(table_order(named(5, 3 << 32, 1 << 16, 2 << 48))) == [1 << 16, 2 << 48, 3 << 32, 5]


def test_a_table_that_was_large_stays_large() -> None:
    assert ids(table_order(named(17, 2, 1), most=12)) == [17, 1, 2]
    assert ids(table_order(named(17, 2, 1), most=13)) == [1, 2, 17]


#: The keys of a ``HashMap<Long, …>`` of Java 17 as it iterates them, put in by their size.
JAVA_ORDER = [
    368819182976, 857987257669, 726129245952, 48527928816, 894284044962, 288306977894,
    347466721851, 778720339751, 789164966041, 400632326173, 673530406554, 547925905221,
    143185176761, 400311479851, 364996719415, 158042542935, 912084365706, 114456474197,
    225673734504, 580446369892, 561021090885, 688437323613, 816530002166, 437921213426,
    549512532852, 834282677672, 977609514571, 845652181298, 12332589482, 432463014167,
]  # fmt: skip


def test_order_is_javas() -> None:
    assert ids(table_order(named(*sorted(JAVA_ORDER)))) == JAVA_ORDER
