"""A segment is left out by its time index only where that is proved; whatever is in doubt is read."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import stratalog
from stratalog.inspect.file.skip_by_time import ends_before
from stratalog.inspect.file.span import segment_spans
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from tests.inspect.logs import segment
from tests.judges.peers.golden import golden_set, golden_sets

SETS = golden_sets()
ENTRY = struct.Struct(">qi")
FAR = 2**62


def largest_of(path: str) -> int:
    table = stratalog.scan(path, columns=["timestamp_ms"], control=True).to_table()
    return max(table["timestamp_ms"].to_pylist(), default=-1)


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_no_segment_of_a_golden_set_is_left_out_wrongly(golden):
    proved = 0
    for partition in golden.partitions():
        for span in segment_spans([str(path) for path in partition.segments]):
            if (golden.name, partition.partition, span.base_offset) == ("v2-torn", 1, 26):
                continue  # cannot be read to its end
            largest = largest_of(span.path)
            assert not ends_before(span, largest)
            assert not ends_before(span, largest - 1)
            proved += ends_before(span, largest + 1)
            assert span.next_offset is not None or not ends_before(span, FAR)
    if golden.name in ("v2-plain", "v2-index-full", "v2-many-partitions", "v2-zstd", "v1-plain"):
        assert proved > 0


def test_v0_messages_of_a_broker_that_indexed_what_it_did_not_store_are_read():
    for golden in golden_sets("v0-"):
        for partition in golden.partitions():
            for span in segment_spans([str(path) for path in partition.segments]):
                assert not ends_before(span, FAR)


@pytest.fixture
def copy(tmp_path):
    (partition,) = golden_set("v2-plain").partitions()
    folder = tmp_path / partition.dir.name
    shutil.copytree(partition.dir, folder)
    span = next(segment_spans(sorted(map(str, folder.glob("*.log")))))
    return span, Path(span.path).with_suffix(".timeindex")


def test_the_copy_is_left_out(copy):
    span, index = copy
    timestamp, _ = ENTRY.unpack(index.read_bytes()[-12:])
    assert timestamp == largest_of(span.path)
    assert ends_before(span, timestamp + 1)


def last_entry(timestamp: int = 0, offset: int = 0):
    """The last entry with something added to both halves."""

    def change(data: bytes) -> bytes:
        old, relative = ENTRY.unpack(data[-12:])
        return data[:-12] + ENTRY.pack(old + timestamp, relative + offset)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data + bytes(12),
        lambda data: data + bytes(1200),
        lambda data: bytes(len(data)),
        lambda data: data[:-12],
        lambda data: data[:-24],
        lambda data: data[:12],
        lambda data: data + data[-24:-12],
        last_entry(timestamp=-1),
        last_entry(timestamp=-(2**40)),
        last_entry(timestamp=-(2**62)),
        last_entry(offset=-1000),
        last_entry(offset=1000),
        last_entry(offset=2**20),
    ],
)
def test_an_index_that_is_not_plausible_or_that_the_log_denies_is_not_believed(copy, change):
    span, index = copy
    changed = change(index.read_bytes())
    index.write_bytes(changed)
    assert not ends_before(span, FAR)


@pytest.mark.parametrize(
    ("entry", "proves"),
    [
        ((2000, 4), True),  # the second batch is the latest
        ((2000, 1), False),  # it says so of the first
        ((2000, 7), False),  # of the third
        ((1000, 1), False),  # the index was cut before the second
        ((1500, 4), False),
    ],
)
def test_the_log_has_the_last_word(tmp_path, entry, proves):
    data = b"".join(
        build_batch([Record(value=b"v", timestamp=time)] * 3, base_offset=3 * number)
        for number, time in enumerate((1000, 2000, 1000))
    )
    path = Path(segment(tmp_path, 0, data))
    path.with_suffix(".timeindex").write_bytes(ENTRY.pack(*entry))
    path.with_suffix(".index").write_bytes(b"")
    span, _ = segment_spans([str(path), segment(tmp_path, 9, b"")])
    assert ends_before(span, FAR) == proves


def test_every_flipped_bit_of_the_last_entry_is_harmless(copy):
    """Goal: no flip leaves out a record. A flip may move the offset within its batch: then all is true."""
    span, index = copy
    data = index.read_bytes()
    largest = largest_of(span.path)
    for bit in range(8 * 12):
        flipped = bytearray(data)
        flipped[len(data) - 12 + bit // 8] ^= 1 << bit % 8
        index.write_bytes(bytes(flipped))
        assert not ends_before(span, largest)
        if bit < 64:
            assert not ends_before(span, FAR)


def test_a_missing_or_foreign_index_is_no_error(copy, tmp_path):
    span, index = copy
    offsets = index.with_suffix(".index")
    data = offsets.read_bytes()
    for changed in (b"", bytes(range(256)), data[:-3], bytes(8000), b"\xff" * 800):
        offsets.write_bytes(changed)
        assert ends_before(span, FAR) in (True, False)
    offsets.unlink()
    assert not ends_before(span, FAR)
    offsets.write_bytes(data)
    assert ends_before(span, FAR)
    index.unlink()
    assert not ends_before(span, FAR)
    index.mkdir()
    assert not ends_before(span, FAR)


def test_the_last_segment_is_never_left_out(copy):
    span, _ = copy
    assert not ends_before(span._replace(next_offset=None), FAR)
    assert not ends_before(span._replace(base_offset=None), FAR)


@pytest.mark.parametrize(
    "name", ["v2-plain", "v2-timestamps", "v2-log-append-time", "mixed", "v1-plain"]
)
def test_a_scan_gives_the_same_with_and_without_indexes(tmp_path, name):
    golden = golden_set(name)
    bare = tmp_path / name
    shutil.copytree(golden.path, bare, ignore=shutil.ignore_patterns("*.timeindex"))
    times = sorted({row["timestamp"] for row in golden.expected()})
    for time in times[:: max(len(times) // 12, 1)]:
        with_index = stratalog.scan(golden.path, start_time=time).to_table()
        assert with_index.equals(stratalog.scan(bare, start_time=time).to_table())
