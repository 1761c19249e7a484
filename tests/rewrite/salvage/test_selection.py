"""Which runs are kept, as a table: runs in, offsets out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.rewrite.salvage.chain import Link, heaviest_chain
from stratalog.rewrite.salvage.runs import Run
from stratalog.rewrite.salvage.selection import LogFacts, Selection, select_runs

#: Bytes that a batch takes here.
SIZE = 100


def runs_of(*described: tuple[int, int] | tuple[int, int, int] | str) -> list[Run]:
    """Runs one after the other: (first, next), with a number of batches as the third; "damage" between them,
    "file" for the next file."""
    runs, at, source = [], 0, 0
    for each in described:
        if each == "damage":
            at += 3 * SIZE
        elif each == "file":
            at, source = 0, source + 1
        else:
            assert not isinstance(each, str)
            first, following, *more = each
            batches = more[0] if more else 1
            end = at + SIZE * batches
            runs.append(Run(source, at, end, first, following, batches, following - first))
            at = end
    return runs


def select(
    runs: Sequence[Run],
    *,
    bases: Sequence[int] = (0,),
    is_dense: bool = True,
    damaged_bytes: int = 10_000,
    leftovers: Sequence[Run] = (),
    log_end: int | None = None,
) -> Selection:
    facts = LogFacts(bases, is_dense, damaged_bytes, log_end=log_end)
    return select_runs(runs, facts, one_by_one, leftovers)


def one_by_one(run: Run) -> list[Run]:
    """A run as batches of one record."""
    count = run.next - run.first
    size = run.size_bytes // count
    return [
        Run(run.source, run.start + size * n, run.start + size * (n + 1), run.first + n,
            run.first + n + 1, 1, 1)
        for n in range(count)
    ]  # fmt: skip


def kept(selection: Selection) -> list[tuple[int, int]]:
    return [(run.first, run.next) for run in selection.kept]


def test_runs_in_order_are_all_kept():
    runs = runs_of((0, 10, 2), "damage", (15, 20), "file", (30, 40, 3))
    found = select(runs, bases=(0, 30))
    assert found.kept == found.in_place == tuple(runs)
    assert found.left_out == ()


def test_a_copy_is_left_out():
    found = select(runs_of((0, 10, 2), "damage", (0, 10, 2), "damage", (20, 30, 2)))
    assert kept(found) == [(0, 10), (20, 30)]
    assert [each.reason for each in found.left_out] == ["duplicate"]


def test_moved_runs_are_kept_where_their_offsets_belong():
    found = select(runs_of((0, 10, 3), "damage", (60, 64, 2), "damage", (20, 50, 9)))
    assert kept(found) == [(0, 10), (20, 50), (60, 64)]
    assert [run.first for run in found.in_place] == [0, 20]


def test_a_batch_with_a_raised_offset_is_left_out():
    found = select(runs_of((0, 20, 4), (16384 + 20, 16384 + 30), (30, 60, 4)))
    assert kept(found) == [(0, 20), (30, 60)]
    (left_out,) = found.left_out
    assert left_out.reason == "misplaced"
    assert "room for the offsets from 20 up to 30" in left_out.detail


@pytest.mark.parametrize("offset", [4, 22, 28])
def test_a_batch_with_a_wrong_offset_displaces_no_other(offset):
    found = select(runs_of((0, 20, 4), (offset, offset + 10), (30, 60, 4)))
    assert kept(found) == [(0, 20), (30, 60)]


def test_two_batches_that_changed_places_are_kept():
    runs = runs_of((0, 16, 4), (48, 64), (32, 48, 4), (16, 32), (64, 80, 4))
    found = select(runs)
    assert kept(found) == [(0, 16), (16, 32), (32, 48), (48, 64), (64, 80)]


def test_gaps_of_a_sound_log_are_left_alone():
    """One bit apart or not: compaction leaves gaps of every size."""
    runs = runs_of((0, 100, 9), (101, 102), (103, 110, 2), (65536 + 110, 65536 + 111))
    for is_dense in (True, False):
        found = select(runs, is_dense=is_dense, damaged_bytes=0)
        assert found.kept == tuple(runs)


def test_segments_that_overlap_are_cut_where_one_takes_over():
    found = select(runs_of((0, 100, 100), "file", (50, 150, 100)), bases=(0, 50))
    offsets = [offset for first, following in kept(found) for offset in range(first, following)]
    assert offsets == list(range(150))
    (left_out,) = found.left_out
    assert left_out.run.span == 50


def test_a_single_batch_below_its_segment_is_left_out():
    found = select(runs_of((4, 14), (120, 150, 3)), bases=(100,))
    assert kept(found) == [(120, 150)]


def test_the_last_batch_beyond_a_clean_end_is_left_out():
    runs = runs_of((0, 20, 4), (25, 26))
    assert kept(select(runs, log_end=21)) == [(0, 20)]
    assert kept(select(runs, damaged_bytes=0)) == [(0, 20), (25, 26)]


def test_leftovers_fill_holes_only():
    live = runs_of((0, 10, 10), "damage", (20, 30, 10))
    leftover = Run(1, 0, 2500, 5, 30, 25, 25)
    found = select(live, bases=(0, 0), leftovers=[leftover])
    assert kept(found) == [(0, 10), (10, 20), (20, 30)]
    assert found.kept[1].source == 1
    assert found.left_out == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(1, 5)).map(
            lambda each: Link(each[0], each[0] + each[1], each[2])
        ),
        max_size=7,
    )
)
def test_no_other_chain_is_heavier(links: list[Link]) -> None:
    chain = heaviest_chain(links)
    assert is_chain([links[number] for number in chain])
    weight = sum(links[number].weight for number in chain)
    for bits in range(1 << len(links)):
        some = [link for number, link in enumerate(links) if bits >> number & 1]
        assert not is_chain(some) or sum(link.weight for link in some) <= weight


def is_chain(links: Sequence[Link]) -> bool:
    return all(one.next <= other.first for one, other in pairwise(links))
