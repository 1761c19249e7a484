"""Fuzz target: looking through the records of a batch, held against the reference and the decoder.

The first bytes choose the count, the base timestamp and what is searched for; the rest are the records.
Whatever they are, the decoder gives the same reason for the same bytes; and where they are sound, the largest
timestamp is found by a search at the record that has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuzz import seeds as made
from fuzz.twins import Selectors, agree, exact
from stratalog.records import _kernel
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    Column,
    Reason,
)
from stratalog.records.scan import scan_batches

TARGET_NAME = "check"
SELECTORS = 7
TIMES = (1_700_000_000_000, 0, -1, INT64_MAX, INT64_MIN, 5)
COUNT_MAX = 0x3FF


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    count = selectors.number() & COUNT_MAX
    count = selectors.choice((count, count, count, count, -1, INT32_MAX, INT64_MAX))
    base = selectors.choice(TIMES)
    target = selectors.choice(TIMES) + (0, 1, -1)[selectors.byte() % 3]
    target = min(max(target, INT64_MIN), INT64_MAX)
    delta_min = selectors.choice((0, 1, 2, -1, INT32_MAX))
    padding = b"\xa5" * (delta_min & 1)
    region = exact(padding + selectors.rest + padding)
    start, end = len(padding), len(padding) + len(selectors.rest)
    answer = agree(lambda kernel: [*kernel.check_records(region, start, end, count, base)])
    found = agree(
        lambda kernel: [*kernel.find_timestamp(region, start, end, count, base, target, delta_min)]
    )
    reason, row, least, most, most_row, gap, null_key = answer
    if reason:
        assert answer[2:] == (-1,) * 5
        assert 0 <= row <= max(count, 0)
        assert found[0] >= 0 or found == (-2, reason), "a search and a check see different damage"
    else:
        assert row == -1
        assert found[0] != -2
        assert max(most_row, gap, null_key) < max(count, 1)
        if most_row >= 0 and gap < 0:
            again = _kernel.find_timestamp(region, start, end, count, base, most, 0)
            assert again == (most_row, most)
        if count:
            first = _kernel.find_timestamp(region, start, end, count, base, least, 0)
            assert first[0] >= 0
    if 0 <= count <= INT32_MAX:
        check_decoder(selectors.rest, count, base, reason)
    return reason, min(row, 3), most_row > 0, gap >= 0, null_key >= 0, min(found[0], 1)


def check_decoder(records: bytes, count: int, base: int, reason: int) -> None:
    batch = bytearray(BATCH_HEADER_SIZE) + records
    _kernel.write_batch_header(batch, 0, 0, -1, 0, INT32_MAX, base, -1, -1, -1, -1, count)
    _, _, found = _kernel.Columns(int(Column.OFFSET)).fill(batch, 0, len(batch))
    assert found == reason, (
        f"the decoder says {Reason(found).name}, the check {Reason(reason).name}"
    )


def seeds() -> Iterable[bytes]:
    for batch in made.batches():
        for header in scan_batches(batch):
            if header.codec == 0:
                count = min(header.record_count, COUNT_MAX)
                start = header.position + BATCH_HEADER_SIZE
                records = batch[start : header.end_position]
                for more in (0, 1):
                    yield (count + more).to_bytes(2, "big") + bytes(SELECTORS - 2) + records
                yield count.to_bytes(2, "big") + b"\0\1\2\1\3" + records
