"""The rules of Kafka's cleaner manager: what is clean, dirty or not to be cleaned; when; in which groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.compact.sections import (
    CleanableLog,
    CleanableSegment,
    plan_cleaning,
    plan_groups,
)
from stratalog.storage.log_config import LogConfig

NOW = 1_000_000


def segments(*sizes: int, **facts: Sequence[int]) -> list[CleanableSegment]:
    """Segments of ten offsets and these sizes, the last one active. ``facts`` are further fields."""
    return [
        CleanableSegment(
            base_offset=10 * number,
            next_base=10 * number + 10,
            size_bytes=size,
            largest_timestamp=facts.get("largest", [-1] * len(sizes))[number],
            first_timestamp=facts.get("first", [-1] * len(sizes))[number],
            offset_index_bytes=facts.get("offset_index", [0] * len(sizes))[number],
            time_index_bytes=facts.get("time_index", [0] * len(sizes))[number],
            is_active=number + 1 == len(sizes),
        )
        for number, size in enumerate(sizes)
    ]


def plan(
    log: Sequence[CleanableSegment],
    *,
    checkpoint: int | None = None,
    log_start: int = 0,
    stable: int | None = None,
    **configs: Any,
) -> CleanableLog:
    end = log[-1].next_base
    return plan_cleaning(
        log,
        log_start=log_start,
        log_end=end,
        last_stable_offset=end if stable is None else stable,
        checkpoint=checkpoint,
        config=LogConfig.of({name.replace("_", "."): value for name, value in configs.items()}),
        now_ms=NOW,
    )


# Sections.


def test_without_a_checkpoint_everything_below_the_active_segment_is_dirty() -> None:
    found = plan(segments(100, 200, 50))
    assert (found.first_dirty, found.first_uncleanable) == (0, 20)
    assert (found.clean_bytes, found.cleanable_bytes) == (0, 300)
    assert found.dirty_ratio == 1
    assert "active segment" in found.blocked_by
    assert found.checkpoint_problem is None


def test_a_dirty_section_begins_at_the_log_start() -> None:
    found = plan(segments(100, 200, 300, 50), log_start=12)
    assert (found.first_dirty, found.first_uncleanable) == (12, 30)
    # The segment that holds the log start is counted in both, as in Kafka.
    assert (found.clean_bytes, found.cleanable_bytes) == (300, 500)


def test_a_segment_that_straddles_the_checkpoint_is_counted_twice() -> None:
    found = plan(segments(100, 200, 300, 50), checkpoint=15)
    assert (found.first_dirty, found.first_uncleanable) == (15, 30)
    assert (found.clean_bytes, found.cleanable_bytes) == (300, 500)
    assert found.dirty_ratio == 500 / 800


def test_a_checkpoint_between_two_segments_is_counted_once() -> None:
    found = plan(segments(100, 200, 300, 50), checkpoint=20)
    assert (found.clean_bytes, found.cleanable_bytes) == (300, 300)


@pytest.mark.parametrize("checkpoint", [9, 41, 1 << 40])
def test_a_checkpoint_outside_the_log_is_not_used(checkpoint: int) -> None:
    found = plan(segments(100, 200, 300, 50), log_start=10, checkpoint=checkpoint)
    assert found.first_dirty == 10
    assert f"checkpoint {checkpoint} lies outside the log (10 to 40)" in str(
        found.checkpoint_problem
    )


@pytest.mark.parametrize("checkpoint", [30, 35, 40])
def test_a_checkpoint_in_the_active_segment_leaves_nothing_to_clean(checkpoint: int) -> None:
    found = plan(segments(100, 200, 300, 50), checkpoint=checkpoint)
    assert found.first_dirty == checkpoint
    assert found.cleanable_bytes == 0
    assert found.needs_cleaning is None


def test_a_log_without_sealed_segments_has_nothing_to_clean() -> None:
    found = plan(segments(100))
    assert (found.cleanable_bytes, found.dirty_ratio) == (0, 0)
    assert found.needs_cleaning is None


@pytest.mark.parametrize(
    ("stable", "uncleanable"), [(0, 0), (5, 0), (10, 10), (19, 10), (20, 20), (29, 20), (35, 30)]
)
def test_nothing_is_cleaned_from_the_segment_of_the_last_stable_offset_on(
    stable: int, uncleanable: int
) -> None:
    found = plan(segments(100, 200, 300, 50), stable=stable)
    assert found.first_uncleanable == uncleanable
    assert found.cleanable_bytes == sum((100, 200, 300)[: uncleanable // 10])
    if stable < 30:
        assert "open transaction" in found.blocked_by


def test_an_open_transaction_below_the_checkpoint_takes_nothing_back() -> None:
    found = plan(segments(100, 200, 300, 50), checkpoint=20, stable=5)
    assert (found.first_dirty, found.cleanable_bytes) == (20, 0)
    assert found.needs_cleaning is None


# Lags.


def test_segments_with_young_records_wait_and_all_after_them() -> None:
    log = segments(100, 200, 300, 50, largest=[NOW - 200, NOW - 99, NOW - 500, NOW])
    found = plan(log, min_compaction_lag_ms=100)
    assert found.first_uncleanable == 10
    assert "min.compaction.lag.ms=100" in found.blocked_by
    assert plan(log, min_compaction_lag_ms=99).first_uncleanable == 30, "just old enough"
    assert plan(log).first_uncleanable == 30, "without a lag"


def test_young_records_that_are_clean_already_block_nothing() -> None:
    log = segments(100, 200, 300, 50, largest=[NOW, NOW - 200, NOW - 200, NOW])
    assert plan(log, min_compaction_lag_ms=100, checkpoint=10).first_uncleanable == 30


def test_a_record_above_the_largest_lag_makes_a_cleaning_due() -> None:
    log = segments(100, 100, 50, first=[NOW, NOW - 101, NOW])
    clean = {"checkpoint": 10, "min_cleanable_dirty_ratio": 1}
    assert "max.compaction.lag.ms=100" in str(
        plan(log, **clean, max_compaction_lag_ms=100).needs_cleaning
    )
    assert plan(log, **clean, max_compaction_lag_ms=101).needs_cleaning is None, "not older yet"
    assert plan(log, **clean).needs_cleaning is None


@pytest.mark.parametrize("time", [0, -1])
def test_a_segment_without_a_time_is_of_no_age(time: int) -> None:
    log = segments(100, 50, first=[time, NOW])
    assert plan(log, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1).needs_cleaning is None


def test_old_records_that_may_not_be_cleaned_make_nothing_due() -> None:
    log = segments(100, 50, first=[1, NOW])
    found = plan(log, stable=0, max_compaction_lag_ms=1)
    assert found.needs_cleaning is None


# The ratio.


def test_the_dirty_ratio_must_be_above_its_limit_and_not_at_it() -> None:
    log = segments(100, 100, 50)
    assert plan(log, checkpoint=10, min_cleanable_dirty_ratio=0.5).needs_cleaning is None
    found = plan(log, checkpoint=10, min_cleanable_dirty_ratio=0.49)
    assert "min.cleanable.dirty.ratio=0.49" in str(found.needs_cleaning)
    assert plan(log, min_cleanable_dirty_ratio=1).needs_cleaning is None
    assert plan(log, min_cleanable_dirty_ratio=0).needs_cleaning is not None
    assert plan(log, checkpoint=20, min_cleanable_dirty_ratio=0).needs_cleaning is None


# Groups.


def groups(
    log: Sequence[CleanableSegment],
    *,
    end: int | None = None,
    segment_bytes: int = 1 << 30,
    index_bytes: int = 1 << 30,
    first_uncleanable: int | None = None,
) -> list[list[int]]:
    last = log[-1].base_offset
    found = plan_groups(
        log,
        last if end is None else end,
        segment_bytes=segment_bytes,
        index_bytes=index_bytes,
        first_uncleanable=last if first_uncleanable is None else first_uncleanable,
    )
    return [[segment.base_offset for segment in group] for group in found]


def test_a_group_is_at_most_as_large_as_a_segment() -> None:
    log = segments(100, 200, 300, 301, 50)
    assert groups(log, segment_bytes=600) == [[0, 10, 20], [30]]
    assert groups(log, segment_bytes=599) == [[0, 10], [20], [30]]
    assert groups(log, segment_bytes=601) == [[0, 10, 20], [30]]
    assert groups(log, segment_bytes=1) == [[0], [10], [20], [30]], "each fits alone"


def test_the_indexes_of_a_group_fit_one_index() -> None:
    by_offset = segments(1, 1, 1, 1, offset_index=[8, 8, 16, 0])
    assert groups(by_offset, index_bytes=16) == [[0, 10], [20]]
    by_time = segments(1, 1, 1, 1, time_index=[12, 24, 12, 0])
    assert groups(by_time, index_bytes=36) == [[0, 10], [20]]


def test_segments_above_the_end_of_the_map_and_the_active_one_are_in_no_group() -> None:
    log = segments(100, 200, 300, 50)
    assert groups(log, end=11) == [[0, 10]]
    assert groups(log, end=10) == [[0]]
    assert groups(log, end=0) == []
    assert groups(log, end=1000) == [[0, 10, 20]]


def far(*places: tuple[int, int], size: int = 10) -> list[CleanableSegment]:
    """Segments at base offsets, with sizes; the last one active."""
    bases = [base for base, _ in places]
    return [
        segments(10)[0]._replace(
            base_offset=base, next_base=following, size_bytes=bytes_, is_active=base == bases[-1]
        )
        for (base, bytes_), following in zip(places, [*bases[1:], bases[-1] + 1], strict=True)
    ]


def test_a_group_is_not_wider_than_an_index_can_say() -> None:
    assert groups(far((0, 10), (5, 10), (INT32_MAX + 1, 10))) == [[0, 5]]
    assert groups(far((0, 10), (5, 10), (INT32_MAX + 2, 10))) == [[0], [5]]
    log = far((100, 10), (105, 10), (100 + INT32_MAX + 1, 10))
    assert groups(log) == [[100, 105]]


def test_an_empty_segment_joins_a_group_however_wide_the_gap_after_it_is() -> None:
    assert groups(far((0, 10), (5, 0), (INT32_MAX * 2, 10))) == [[0, 5]]
    # What follows it is compared with the first of the group, too.
    log = far((0, 10), (5, 0), (INT32_MAX * 2, 10), (INT32_MAX * 2 + 5, 10))
    assert groups(log) == [[0, 5], [INT32_MAX * 2]]


def test_the_last_offset_of_a_group_is_below_what_may_not_be_cleaned() -> None:
    log = far((0, 10), (5, 10), (INT32_MAX * 2, 10))
    assert groups(log, first_uncleanable=INT32_MAX) == [[0, 5]]


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=12),
    st.integers(1, 1500),
    st.integers(0, 130),
)
def test_groups_are_the_segments_in_order_and_no_two_neighbours_would_fit_one(
    sizes: list[int], segment_bytes: int, end: int
) -> None:
    log = segments(*sizes)
    found = plan_groups(
        log,
        end,
        segment_bytes=segment_bytes,
        index_bytes=1 << 20,
        first_uncleanable=log[-1].base_offset,
    )
    assert [each for group in found for each in group] == [
        each for each in log[:-1] if each.base_offset < end
    ]
    totals = [sum(each.size_bytes for each in group) for group in found]
    for group, total in zip(found, totals, strict=True):
        assert len(group) == 1 or total <= segment_bytes
    for total, following in zip(totals, found[1:], strict=False):
        assert total + following[0].size_bytes > segment_bytes
