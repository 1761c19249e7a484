"""How far a log has come with a commit, also where a broker has deleted or compacted part of it since."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from stratalog.manager.commits.compare import (
    NOTHING,
    BatchBytes,
    PlannedBatch,
    Reached,
    how_far,
)
from stratalog.records import kernel
from stratalog.records.builder import build_batch
from stratalog.records.layout import CRC_AT, CRC_FROM, LOG_OVERHEAD, RECORD_COUNT_AT, SIZE_AT
from stratalog.records.model import Record, RecordHeader
from stratalog.records.restamp import assign_offsets
from stratalog.records.scan import scan_batches

START = 40
#: Two pieces of three batches of three records each.
PIECES, BATCHES, RECORDS = 2, 3, 3
RECORDS_AT = RECORD_COUNT_AT + 4


def values(batch: int) -> list[str]:
    return [f"{batch}.{number}" for number in range(RECORDS)]


def batch_of(offset: int, listed: Sequence[str], left: Sequence[int] | None = None) -> BatchBytes:
    """A batch with these values, or what compaction leaves where only those of these numbers are ``left``:
    the records as they were, in a batch of the same offsets."""
    headers = (RecordHeader("h", b"x"),)
    records = [Record(value.encode(), value.encode(), 7, headers) for value in listed]
    data = bytearray(build_batch(records))
    if left is not None:
        kept, position = bytearray(), RECORDS_AT
        for number in range(len(listed)):
            end = position + 1 + (data[position] >> 1)  # sizes below 64 are one byte
            kept += data[position:end] if number in left else b""
            position = end
        data[RECORDS_AT:] = kept
        struct.pack_into(">i", data, RECORD_COUNT_AT, len(left))
        struct.pack_into(">i", data, SIZE_AT, len(data) - LOG_OVERHEAD)
        struct.pack_into(">I", data, CRC_AT, kernel.crc32c(memoryview(data)[CRC_FROM:]))
    assign_offsets(memoryview(data), next_offset=offset, leader_epoch=0)
    (header,) = scan_batches(data)
    assert (header.base_offset, header.last_offset) == (offset, offset + len(listed) - 1)
    return BatchBytes(offset, header.last_offset, header.crc, memoryview(data))


def whole(number: int, offset: int) -> BatchBytes:
    return batch_of(offset, values(number))


def planned() -> list[PlannedBatch]:
    """Offsets of a piece count from zero."""
    found = []
    for number in range(PIECES * BATCHES):
        piece, at = divmod(number, BATCHES)
        behind = Reached(*divmod(number + 1, BATCHES))
        found.append(PlannedBatch(whole(number, at * RECORDS), behind))
        assert behind.piece in (piece, piece + 1)
    return found


def there(*numbers: int) -> list[BatchBytes]:
    """Batches of the commit at their offsets."""
    return [whole(number, START + number * RECORDS) for number in numbers]


def foreign(offset: int) -> BatchBytes:
    return batch_of(offset, ["foreign"] * RECORDS)


def reached(batches: int) -> Reached:
    return Reached(*divmod(batches, BATCHES), batches * RECORDS)


@pytest.mark.parametrize("count", range(PIECES * BATCHES + 1))
@pytest.mark.parametrize("has_foreign", [False, True])
def test_a_beginning_and_then_the_end_or_something_else(count: int, has_foreign: bool) -> None:
    log = there(*range(count))
    if has_foreign:
        log.append(foreign(START + count * RECORDS))
    assert how_far(planned(), iter(log), START) == reached(count)


@pytest.mark.parametrize("gone", [(0,), (0, 1, 2), (1,), (0, 2, 3)])
def test_what_was_deleted_or_compacted_away_was_there(gone: tuple[int, ...]) -> None:
    log = there(*(number for number in range(5) if number not in gone))
    end = START + 5 * RECORDS
    assert how_far(planned(), iter([*log, foreign(end)]), START) == reached(5)


def test_what_is_missing_in_front_of_something_else_is_not_taken_for_there() -> None:
    log = [*there(0, 1), foreign(START + 4 * RECORDS)]
    assert how_far(planned(), iter(log), START) == reached(2)
    assert how_far(planned(), iter([foreign(START + 60)]), START) == NOTHING
    assert how_far(planned(), iter(()), START) == NOTHING


@pytest.mark.parametrize("left", [(0,), (1,), (2,), (0, 2)])
def test_what_compaction_left_of_a_batch_is_that_batch(left: tuple[int, ...]) -> None:
    at = START + 3 * RECORDS
    rest = batch_of(at, values(3), left)
    assert how_far(planned(), iter([*there(0), rest]), START) == reached(4)


def test_a_batch_of_the_same_offsets_and_other_records_is_somebody_else_s() -> None:
    at = START + RECORDS
    other = batch_of(at, ["1.0", "1.1", "other"], [0, 2])
    moved = batch_of(at, ["1.1", "1.0", "1.2"], [1])
    empty = batch_of(at, values(1), [])
    for each in other, moved, empty:
        assert how_far(planned(), iter([*there(0), each]), START) == reached(1)


def test_a_batch_that_begins_between_two_is_somebody_else_s() -> None:
    log = [*there(0), foreign(START + RECORDS + 1), *there(3)]
    assert how_far(planned(), iter(log), START) == reached(1)


def test_a_second_run_begins_where_the_first_was_interrupted() -> None:
    rest = planned()[4:]
    log = [whole(4, 100), whole(5, 103)]
    assert how_far(rest, iter(log[:1]), 100, Reached(1, 1)) == Reached(1, 2, RECORDS)
    assert how_far(rest, iter(log), 100, Reached(1, 1)) == Reached(2, 0, 2 * RECORDS)
    assert how_far(rest, iter(()), 100, Reached(1, 1)) == Reached(1, 1)
