"""replay_rows leaves out the rows that decide nothing: replaying what it keeps gives the producers' state
that replaying everything gives. Handwritten cases run on both kernels."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.layout import (
    CONTROL_MASK,
    REMEMBERED_BATCHES,
    REPLAY_PRODUCERS_MAX,
    ROW_WIDTH,
    TRANSACTIONAL_MASK,
    Row,
)
from tests.records.generated import int64
from tests.records.rows import row, table
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])

MARKER = CONTROL_MASK | TRANSACTIONAL_MASK


def kept(kernel: Any, rows: list[list[int]]) -> list[int]:
    keep = array("q", [-7]) * (len(rows) + 1)
    count = kernel.replay_rows(table(rows), len(rows), memoryview(keep)[: len(rows)])
    assert keep[len(rows)] == -7
    return keep[:count].tolist()


def batches(count: int, producer_id: int = 1, epoch: int = 0, attributes: int = 0) -> Any:
    one = row(producer_id=producer_id, producer_epoch=epoch, attributes=attributes)
    return [one] * count


@both
def test_of_a_run_the_first_and_the_last_five_are_kept(kernel: Any) -> None:
    for count in range(7):
        assert kept(kernel, batches(count)) == list(range(count))
    assert kept(kernel, batches(7)) == [0, 2, 3, 4, 5, 6]
    assert kept(kernel, batches(100)) == [0, 95, 96, 97, 98, 99]


@both
def test_batches_without_a_producer_are_never_kept(kernel: Any) -> None:
    assert kept(kernel, [row(), *batches(1), row(producer_id=-5)]) == [1]


@both
def test_every_control_row_is_kept(kernel: Any) -> None:
    markers = batches(8, attributes=MARKER)
    assert kept(kernel, markers) == list(range(8))
    assert kept(kernel, [row(attributes=CONTROL_MASK)]) == [0]  # of no producer: a leader change


@both
def test_the_bit_of_a_control_batch_means_nothing_in_old_messages(kernel: Any) -> None:
    assert kept(kernel, [row(attributes=CONTROL_MASK, magic=1)]) == []


@both
def test_a_run_ends_with_its_epoch_its_transactional_bit_and_a_marker(kernel: Any) -> None:
    first = batches(8)
    for rows in (
        first + batches(8, epoch=1),
        first + batches(8, attributes=TRANSACTIONAL_MASK),
        first + batches(8, epoch=-1),
    ):
        assert kept(kernel, rows) == [0, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15]
    rows = first + batches(1, attributes=MARKER) + batches(8)
    assert kept(kernel, rows) == [0, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16]


@both
def test_rows_of_others_do_not_end_a_run(kernel: Any) -> None:
    mine = batches(8)
    others = batches(8, producer_id=2, attributes=TRANSACTIONAL_MASK)
    rows = [each for pair in zip(mine, others, strict=True) for each in pair]
    rows[7:7] = batches(1, producer_id=3, attributes=MARKER)
    evens = [0, 6, 9, 11, 13, 15]
    assert [at for at in kept(kernel, rows) if at not in evens] == [1, 7, 8, 10, 12, 14, 16]


@both
def test_beyond_so_many_producers_the_rows_of_others_are_all_kept(kernel: Any) -> None:
    """Producers count in the order in which their first data row comes."""
    count = REPLAY_PRODUCERS_MAX + 2
    rows = [each for _ in range(8) for at in range(count) for each in batches(1, at * 2**40)]
    wanted = [
        at
        for at in range(8 * count)
        if at % count >= REPLAY_PRODUCERS_MAX or at // count not in (1, 2)
    ]
    assert kept(kernel, rows) == wanted


@both
def test_buffers_that_are_no_rows_or_too_small_are_refused(kernel: Any) -> None:
    rows = table(batches(2))
    for keep in (array("q", [0]), array("i", [0] * 9), bytes(16)):
        with pytest.raises(ValueError, match=r"integers|written"):
            kernel.replay_rows(rows, 2, keep)
    for count in (3, -1):
        with pytest.raises(ValueError, match="integers"):
            kernel.replay_rows(rows, count, array("q", [0] * 9))
    assert kernel.replay_rows(rows, 0, array("q")) == 0


class Producers:
    """What Kafka keeps of producers, and how replicated batches change it: the smallest form of it."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.recent: dict[int, deque[int]] = {}
        self.transactions: dict[int, int] = {}  # where the open one starts
        self.completed: list[tuple[int, int, int]] = []
        self.refused: int | None = None

    def replay(self, rows: list[list[int]], chosen: list[int]) -> Producers:
        for number in chosen:
            fields = rows[number]
            producer_id = fields[Row.PRODUCER_ID]
            if producer_id < 0 or self.refused is not None:
                continue
            self.note_epoch(producer_id, fields[Row.PRODUCER_EPOCH])
            if fields[Row.ATTRIBUTES] & CONTROL_MASK:
                start = self.transactions.pop(producer_id, None)
                if start is not None:
                    self.completed.append((producer_id, start, number))
                continue
            if fields[Row.ATTRIBUTES] & TRANSACTIONAL_MASK:
                self.transactions.setdefault(producer_id, number)
            elif producer_id in self.transactions:
                self.refused = number  # a plain batch inside a transaction ends a replay
            self.recent[producer_id].append(number)
        return self

    def note_epoch(self, producer_id: int, epoch: int) -> None:
        if self.epochs.get(producer_id) != epoch:
            self.recent[producer_id] = deque(maxlen=REMEMBERED_BATCHES)
            self.epochs[producer_id] = epoch

    def state(self) -> Any:
        if self.refused is not None:
            return self.refused
        return self.epochs, self.recent, self.transactions, self.completed


@st.composite
def histories(draw: st.DrawFn) -> list[list[int]]:
    """A few producers that mostly go on as they did."""
    kinds = {pid: [0, 0] for pid in range(-1, 3)}
    rows: list[list[int]] = []
    for _ in range(draw(st.integers(0, 40))):
        producer_id = draw(st.sampled_from([-1, 0, 0, 0, 1, 1, 2]))
        kind = kinds[producer_id]
        change = draw(st.integers(0, 19))
        if change == 0:
            kind[0] += draw(st.sampled_from([1, 1, -1]))
        elif change == 1:
            kind[1] ^= TRANSACTIONAL_MASK
        attributes = MARKER if change == 2 else kind[1]
        rows += batches(draw(st.sampled_from([1, 1, 1, 7])), producer_id, kind[0], attributes)
    return rows


@given(histories())
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_replaying_what_is_kept_gives_the_same_state(rows: list[list[int]]) -> None:
    chosen = kept(_kernel, rows)
    assert chosen == kept(_reference, rows)
    assert chosen == sorted(set(chosen))
    everything = Producers().replay(rows, list(range(len(rows))))
    assert Producers().replay(rows, chosen).state() == everything.state()


few = st.integers(-2, 3) | st.sampled_from([CONTROL_MASK, TRANSACTIONAL_MASK, MARKER]) | int64


@given(st.lists(st.lists(few, min_size=ROW_WIDTH, max_size=ROW_WIDTH), max_size=20))
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_any_numbers_agree(rows: list[list[int]]) -> None:
    assert kept(_kernel, rows) == kept(_reference, rows)
