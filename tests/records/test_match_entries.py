"""match_entries: index entries held against header rows, by the kernel and by the reference alike."""

from __future__ import annotations

import random
import struct
from array import array

import pytest

from stratalog.records import _kernel, _reference
from stratalog.records.layout import MATCH_STATE_WIDTH, ROW_WIDTH, MatchState, MatchStop, Row

KERNELS = [_kernel, _reference]


def row(position, base, last, *, time=-1, epoch=-1, attributes=0, magic=2):
    fields = [0] * ROW_WIDTH
    for name, value in {
        Row.POSITION: position, Row.BASE_OFFSET: base, Row.LAST_OFFSET: last, Row.MAX_TIMESTAMP: time,
        Row.LEADER_EPOCH: epoch, Row.ATTRIBUTES: attributes, Row.MAGIC: magic,
    }.items():  # fmt: skip
        fields[name] = value
    return fields


def rows_of(*rows):
    return array("q", [field for each in rows for field in each])


def state_of(**changes):
    state = array("q", bytes(8 * MATCH_STATE_WIDTH))
    state[MatchState.ENTRY_OFFSET] = state[MatchState.LEADER_EPOCH] = -1
    state[MatchState.MAX_TIMESTAMP] = state[MatchState.LAST_OFFSET] = -1
    for name, value in changes.items():
        state[MatchState[name]] = value
    return state


def offsets_of(*entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times_of(*entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def three(**options):
    return rows_of(
        row(0, 0, 4, time=10), row(100, 5, 9, time=20, **options), row(200, 10, 14, time=15)
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("entries", "stop"),
    [
        ([(9, 100), (14, 200)], MatchStop.DONE),  # as 4.3 writes them
        ([(14, 100)], MatchStop.DONE),  # an append of two batches, as 2.8 writes it
        ([(5, 100), (10, 200)], MatchStop.DONE),  # first offsets, as 0.10 writes them
        ([(9, 101)], MatchStop.OFFSET_ENTRY),  # no batch starts there
        ([(4, 100)], MatchStop.OFFSET_ENTRY),  # would lead past the batch that holds 4
        ([(9, 100), (9, 200)], MatchStop.OFFSET_ENTRY),
        ([(10, 100), (14, 200)], MatchStop.OFFSET_ENTRY),  # reaches the batch of the next entry
        ([(9, 100), (14, 100)], MatchStop.OFFSET_ENTRY),
        ([(-1, 100)], MatchStop.OFFSET_ENTRY),
        ([(14, 300)], MatchStop.DONE),  # beyond the last row: for the caller to judge
    ],
)
def test_offset_entries(kernel, entries, stop):
    state = state_of()
    reached, found = kernel.match_entries(three(), 0, 3, state, offsets_of(*entries), b"")
    assert found == stop
    assert reached == 3 or stop == MatchStop.OFFSET_ENTRY


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("entries", "stop"),
    [
        ([(10, 4), (20, 9)], MatchStop.DONE),
        ([(20, 9)], MatchStop.DONE),
        ([(19, 9)], MatchStop.TIME_ENTRY),  # a batch up to offset 9 is later
        ([(10, 4), (10, 9)], MatchStop.TIME_ENTRY),
        ([(10, 6), (20, 5)], MatchStop.TIME_ENTRY),
        ([(10, 7), (20, 9)], MatchStop.DONE),  # the offset of a record inside its wrapper
    ],
)
def test_time_entries(kernel, entries, stop):
    assert kernel.match_entries(three(), 0, 3, state_of(), b"", times_of(*entries))[1] == stop


@pytest.mark.parametrize("kernel", KERNELS)
def test_epochs_and_control_batches_are_handed_back(kernel):
    rows = three(epoch=3, attributes=0x30)
    state = state_of()
    assert kernel.match_entries(rows, 0, 3, state, b"", b"") == (1, MatchStop.LEADER_EPOCH)
    state[MatchState.LEADER_EPOCH] = 3
    assert kernel.match_entries(rows, 1, 3, state, b"", b"") == (2, MatchStop.CONTROL)
    assert kernel.match_entries(rows, 2, 3, state, b"", b"") == (3, MatchStop.DONE)
    assert (state[MatchState.MAX_TIMESTAMP], state[MatchState.WIDEST]) == (20, 5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nonsense_is_refused(kernel):
    with pytest.raises(ValueError, match="before the first"):
        kernel.match_entries(three(), -1, 3, state_of(), b"", b"")
    with pytest.raises(ValueError, match="before the first"):
        kernel.match_entries(three(), 0, 3, state_of(OFFSET_SLOT=-1), b"", b"")
    with pytest.raises(ValueError, match="64-bit"):
        kernel.match_entries(three(), 0, 4, state_of(), b"", b"")


def test_kernel_and_reference_agree_on_random_rows_and_entries():
    rng = random.Random(7)
    stops = set()
    for _ in range(3000):
        rows, at, offset = [], 0, rng.choice([0, 50])
        for _ in range(rng.randrange(1, 6)):
            last = offset + rng.randrange(4)
            magic = rng.choice([0, 1, 2, 2, 2])
            rows.append(
                row(
                    at,
                    -1 if magic < 2 and rng.random() < 0.5 else offset,
                    last,
                    time=rng.randrange(-1, 8),
                    epoch=rng.choice([-1, 0, 1]),
                    magic=magic,
                    attributes=rng.choice([0, 0, 0x20, 0x40]),
                )
            )
            at, offset = at + rng.randrange(1, 3), last + rng.randrange(1, 3)
        offsets = offsets_of(
            *sorted((rng.randrange(-1, 12), rng.randrange(8)) for _ in range(rng.randrange(4)))
        )
        times = times_of(
            *sorted((rng.randrange(-1, 8), rng.randrange(-1, 12)) for _ in range(rng.randrange(4)))
        )
        one = state_of(BASE_OFFSET=rows[0][Row.LAST_OFFSET] // 50 * 50, LEADER_EPOCH=0)
        other = array("q", one)
        table = rows_of(*rows)
        found = _kernel.match_entries(table, 0, len(rows), one, offsets, times + b"\0" * 5)
        assert found == _reference.match_entries(
            table, 0, len(rows), other, offsets, times + b"\0" * 5
        )
        assert one == other
        stops.add(found[1])
    assert stops == set(MatchStop)
