"""Every batch, message and wrapper header of the golden sets says what Kafka's own dump says of it.

Compared is every field that the dump of that version shows (`judges/peers/dump_log.py` lists what each of
the four shapes leaves out). Then the records inside: offset, timestamp, sizes and sequence of each, and the
batch-level columns that stand beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.records.columns import RegionDecoder, Selection, records_of
from stratalog.records.layout import Check, Column, Ending, Reason
from stratalog.records.model import BatchHeader, Record
from stratalog.records.scan import STRICT, BatchScan, scan_batches, scan_v07
from tests.judges.peers.dump_log import DumpBatch, DumpFile
from tests.judges.peers.golden import GoldenSet, golden_sets

SETS = golden_sets()
each_set = pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])

RECORD_COLUMNS = (
    Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS
)
WITH_CONTROL = Check.CRC | Check.ORDER | Check.INCLUDE_CONTROL


def dumped_segments(golden: GoldenSet) -> Iterator[tuple[Path, DumpFile]]:
    for partition in golden.partitions():
        for segment in partition.segments:
            yield segment, golden.dump_of(segment)


def scan_of(segment: Path, data: bytes) -> BatchScan:
    if segment.suffix == ".kafka":
        return scan_v07(data, check=STRICT, base_offset=int(segment.stem))
    return scan_batches(data, check=STRICT, expected_offset=int(segment.stem))


def shown_fields(dump: DumpFile, batch: DumpBatch) -> dict[str, Any]:
    """The fields of the header that the dump shows, by our names.

    A wrapper's header tells neither its first offset nor its count: they are -1 there, and compared
    with what is inside below.
    """
    shown = {
        "position": batch.position,
        "size_bytes": batch.size,
        "magic": batch.magic,
        "last_offset": batch.last_offset,
        "is_wrapper": batch.is_wrapper,
        "base_offset": -1 if batch.is_wrapper and dump.shape != "v07" else batch.base_offset,
        "record_count": -1 if batch.is_wrapper else batch.count,
        "codec": batch.codec,
        "crc": batch.crc,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
    }
    shown = {name: value for name, value in shown.items() if value is not None}
    if dump.shape == "batches":
        shown["delete_horizon_ms"] = batch.delete_horizon_ms  # here None says that there is none
    return shown


def our_fields(header: BatchHeader, names: Iterator[str] | dict[str, Any]) -> dict[str, Any]:
    ours = {name: getattr(header, name) for name in names}
    if "codec" in ours:
        ours["codec"] = header.codec.name.lower()
    return ours


@each_set
def test_headers_equal_the_dump(golden: GoldenSet) -> None:
    for segment, dump in dumped_segments(golden):
        data = segment.read_bytes()
        scan = scan_of(segment, data)
        valid = _valid_batches(dump)
        for batch in valid:
            header = next(scan)
            shown = shown_fields(dump, batch)
            assert our_fields(header, shown) == shown, (dump.name, batch.position)
            assert header.end_position == batch.position + batch.size
        assert list(scan) == []
        _check_end(scan, dump, valid, data)


def _valid_batches(dump: DumpFile) -> list[DumpBatch]:
    """Up to the first that Kafka finds invalid: a strict scan stops there."""
    valid = []
    for batch in dump.batches:
        if not batch.is_valid:
            break
        valid.append(batch)
    return valid


def _check_end(scan: BatchScan, dump: DumpFile, valid: list[DumpBatch], data: bytes) -> None:
    position = valid[-1].position + valid[-1].size if valid else 0
    assert scan.end.position == position
    if len(valid) < len(dump.batches):
        assert (scan.end.ending, scan.end.reason) == (Ending.CORRUPT, Reason.CRC_MISMATCH)
    elif dump.complete:
        assert scan.end.ending == Ending.END
    else:
        zeros = not any(data[position:])
        reason = Reason.ZERO_TAIL if zeros else Reason.SHORT_TAIL
        assert (scan.end.ending, scan.end.reason) == (Ending.INCOMPLETE, reason)


def test_headers_without_strict_checks_equal_those_with_them() -> None:
    """Without the CRC check the flipped bit of v2-torn is walked over, as Kafka's dump does."""
    walked = Counter[str]()
    for golden in SETS:
        for segment, dump in dumped_segments(golden):
            if dump.shape == "v07":
                continue
            scan = scan_batches(segment.read_bytes())
            assert [header.position for header in scan] == [b.position for b in dump.batches]
            walked[dump.shape] += len(dump.batches)
    print(dict(walked))
    assert all(walked[shape] >= least for shape, least in LEAST_BATCHES.items())


#: Batches by the shape of their dump, so that none of these tests runs empty.
LEAST_BATCHES = {"messages": 300, "entries": 750, "batches": 1100}


def test_every_field_is_compared_somewhere() -> None:
    compared = Counter[str]()
    for golden in SETS:
        for _, dump in dumped_segments(golden):
            for batch in _valid_batches(dump):
                compared.update(shown_fields(dump, batch).keys())
                compared["with a delete horizon"] += batch.delete_horizon_ms is not None
                compared["control"] += bool(batch.is_control)
                compared["transactional"] += bool(batch.is_transactional)
                compared["empty"] += batch.count == 0
                compared["with an epoch"] += (batch.leader_epoch or 0) > 0
                compared["idempotent"] += (batch.base_sequence or -1) >= 0
    print(dict(compared))
    assert set(shown_fields(dump, batch)) <= set(compared)
    assert min(compared.values()) > 0, compared


# --- what is inside ------------------------------------------------------------------------------


def records_at(segment: Path, data: bytes, header: BatchHeader) -> list[Record]:
    """The records of one batch alone, control records included."""
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, check=WITH_CONTROL))
    if segment.suffix == ".kafka":
        pause = decoder.decode_v07(
            data, header.position, header.end_position, base_offset=int(segment.stem)
        )
    else:
        pause = decoder.decode(data, header.position, header.end_position)
    assert pause.ending == Ending.END
    return list(records_of(decoder.take()))


def size_of(part: bytes | None) -> int:
    return -1 if part is None else len(part)


@each_set
def test_records_equal_the_dump(golden: GoldenSet) -> None:
    for segment, dump in dumped_segments(golden):
        if dump.shape == "v07":  # its tool does not look inside
            continue
        data = segment.read_bytes()
        for header, batch in zip(scan_of(segment, data), _valid_batches(dump), strict=True):
            records = records_at(segment, data, header)
            assert len(records) == batch.count
            if records:
                assert records[0].offset >= batch.base_offset
                assert records[-1].offset <= batch.last_offset
            if batch.is_wrapper:
                assert records[0].offset == batch.base_offset
                assert records[-1].offset == batch.last_offset
            for record, dumped in zip(records, batch.records, strict=True):
                assert record.offset == dumped.offset
                assert dumped.timestamp in (None, record.timestamp)
                assert dumped.timestamp_type in (None, record.timestamp_type)
                assert dumped.key_size in (None, size_of(record.key))
                assert dumped.value_size in (None, size_of(record.value))


@each_set
def test_batch_level_columns_equal_the_dump(golden: GoldenSet) -> None:
    names = (
        *("offset", "position", "base_offset", "producer_id", "producer_epoch"),
        *("sequence", "leader_epoch", "codec", "is_control", "is_transactional"),
    )
    for partition in golden.partitions():
        if golden.is_v07 or golden.damaged:
            continue
        scan = stratalog.scan(partition.segments, columns=names, control=True)
        rows = scan.to_table().to_pylist()
        dumped = [
            (batch, record)
            for segment in partition.segments
            for batch in golden.dump_batches(segment)
            for record in batch.records
        ]
        for row, (batch, record) in zip(rows, dumped, strict=True):
            wanted = {
                "offset": record.offset,
                "position": batch.position,
                "base_offset": batch.base_offset,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "sequence": record.sequence,
                "leader_epoch": batch.leader_epoch,
                "codec": batch.codec,
                "is_control": batch.is_control,
                "is_transactional": batch.is_transactional,
            }
            absent = {"producer_id": -1, "producer_epoch": -1, "sequence": -1, "leader_epoch": -1}
            for name, value in wanted.items():
                if value is not None:
                    assert row[name] == value, (name, row, batch.position)
                elif batch.magic < 2 and name in absent:
                    assert row[name] == absent[name]
