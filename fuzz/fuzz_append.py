"""Fuzz target: the short way of appends, held against the reference and against the long way.

The first bytes choose what a log takes and where its segment stands; the rest is what a producer sent. What
is admitted is one whole, plain batch that the decoder reads without a word of damage; what is placed is
stamped as ``restamp`` stamps it, and nothing else of it is changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

from fuzz import seeds as made
from fuzz.twins import EVERY_COLUMN, REFUSED, Selectors, agree, exact
from stratalog.records import _kernel
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import (
    INDEX_STATE_WIDTH,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    Check,
    Column,
    IndexState,
    Row,
)
from stratalog.records.model import Record

TARGET_NAME = "append"
SELECTORS: Final = 14
NOW: Final = 1_700_000_000_000
TIMES: Final = (NOW, NOW, 0, -1, INT64_MAX, INT64_MIN)
SPANS: Final = (INT64_MAX, INT64_MAX, 0, 5, 1 << 40, -1)
OFFSETS: Final = (0, 7, INT32_MAX, 1 << 40, INT64_MAX - 1, INT64_MAX, -1)
EVERYTHING: Final = Selection(
    columns=Column(EVERY_COLUMN), check=Check.CRC | Check.ORDER | Check.COUNTS
)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    rules = (
        selectors.choice((1 << 20, 1 << 20, 100, 0, -1)),
        selectors.choice(TIMES),
        selectors.choice(SPANS),
        selectors.choice(SPANS),
        bool(selectors.byte() & 1),
    )
    sent = selectors.rest

    def admitted(kernel: Any) -> object:
        found = kernel.admit_plain(exact(sent), *rules)
        return found if found is None else [bytes(found[0]), list(found[1])]

    answer = agree(admitted)
    if answer in (None, REFUSED):
        return answer
    own, row = answer
    assert own == sent
    records = list(decode_records(sent, EVERYTHING))
    assert len(records) == row[Row.RECORD_COUNT]
    assert row[Row.MAX_TIMESTAMP] == max(-1, *(each.timestamp for each in records))
    return "admitted", place(selectors, sent, row)


def place(selectors: Selectors, sent: bytes, row: tuple[int, ...]) -> object:
    state = array("q", bytes(8 * INDEX_STATE_WIDTH))
    state[IndexState.BASE_OFFSET] = selectors.choice(OFFSETS)
    state[IndexState.OFFSET_SLOTS] = selectors.choice((9, 9, 0, -1))
    state[IndexState.TIME_SLOTS] = selectors.choice((9, 9, 0, -1))
    position = selectors.choice((0, 100, 1 << 40, -1))
    room = selectors.choice((len(sent), len(sent) - 1, 1 << 30))
    first, span = selectors.choice(TIMES), selectors.choice(SPANS)
    next_offset, epoch = selectors.choice(OFFSETS), selectors.byte() - 1

    def placed(kernel: Any) -> object:
        own, numbers = exact(sent), array("q", row)
        last = kernel.place_plain(
            own, numbers, state, position, position + room, first, span, next_offset, epoch
        )
        return [last, bytes(own), list(numbers)]

    answer = agree(placed)
    if answer == REFUSED:
        return REFUSED
    last, own, numbers = answer
    if last < 0:
        assert (own, numbers) == (sent, row), "a batch that was not placed was changed"
        return False
    wanted = bytearray(sent)
    _kernel.restamp(wanted, 0, len(wanted), next_offset, epoch)
    assert own == wanted
    assert len(numbers) == ROW_WIDTH
    assert (numbers[Row.BASE_OFFSET], numbers[Row.LAST_OFFSET]) == (next_offset, last)
    return True


def repair(data: bytes) -> bytes:
    return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])


def seeds() -> Iterable[bytes]:
    plain = [Record(b"v", b"k", NOW), Record(None, b"", NOW + 5), Record(b"x" * 40, None, NOW - 9)]
    batches = [
        build_batch([Record(r.value, r.key, r.timestamp, r.headers) for r in made.RECORDS]),
        build_batch(plain),
        build_batch(plain, BatchOptions(producer_id=7, producer_epoch=1, base_sequence=3)),
        build_batch([Record(b"v", b"k", NOW)] * 260),
    ]
    for batch in [*batches, *made.batches()]:
        yield bytes(SELECTORS) + batch
        yield bytes((0, 0, 3, 3, 1, 1, 0, 0, 1, 2, 0, 3, 1, 4)) + batch
        yield bytes((2, 2, 0, 0, 0, 3, 2, 0, 2, 1, 3, 5, 2, 1)) + batch
