"""Retention: Kafka's rules as tables, its worked example, and what no policy may ever cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.storage.log.retention import (
    BreachedStart,
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    SizeLimit,
    TimeLimit,
    plan_retention,
    policies_for,
)
from stratalog.storage.log_config import LogConfig
from tests.scale import SCALE, sized

NOW = 1_000_000
END = 40


def log_of(*sizes: int, times: Sequence[int] | None = None) -> list[SegmentFacts]:
    """Segments of ten offsets each; the last is the active one."""
    times = [NOW] * len(sizes) if times is None else times
    return [
        SegmentFacts(10 * at, 10 * at + (10 if size else 0), size, time, at == len(sizes) - 1)
        for at, (size, time) in enumerate(zip(sizes, times, strict=True))
    ]


def gone(plan: RetentionPlan) -> list[int]:
    return [deletion.base_offset for deletion in plan.deletions]


def test_worked_example_of_size():
    plan = plan_retention(log_of(100, 100, 100, 50), [SizeLimit(200)], high_watermark=END)
    assert gone(plan) == [0]
    assert plan.new_log_start == 10
    assert not plan.needs_roll
    (deletion,) = plan.deletions
    assert deletion.policy == "retention.bytes"
    assert deletion.reason == "the log has 350 bytes, and 250 without it: not below 200"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(-1, []), (351, []), (350, []), (250, [0]), (249, [0]), (150, [0, 10]), (50, [0, 10, 20]),
     (1, [0, 10, 20])],
)  # fmt: skip
def test_size_takes_segments_while_the_rest_reaches_the_limit(limit, expected):
    plan = plan_retention(log_of(100, 100, 100, 50), [SizeLimit(limit)], high_watermark=END)
    assert gone(plan) == expected


def test_size_zero_takes_all_and_asks_for_a_roll():
    plan = plan_retention(log_of(100, 100, 100, 50), [SizeLimit(0)], high_watermark=END)
    assert gone(plan) == [0, 10, 20, 30]
    assert plan.needs_roll
    assert plan.new_log_start == END


def test_size_zero_keeps_an_empty_active_segment():
    plan = plan_retention(log_of(100, 100, 0), [SizeLimit(0)], high_watermark=20)
    assert gone(plan) == [0, 10]
    assert not plan.needs_roll
    assert plan.new_log_start == 20


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [(0, []), (9, []), (10, [0]), (19, [0]), (39, [0, 10, 20]), (40, [0, 10, 20, 30])],
)
def test_nothing_at_or_beyond_the_high_watermark_goes(high_watermark, expected):
    segments = log_of(100, 100, 100, 50, times=[0] * 4)
    for policy in (SizeLimit(0), TimeLimit(1, NOW)):
        assert gone(plan_retention(segments, [policy], high_watermark=high_watermark)) == expected


def test_segment_ends_where_the_next_starts_also_when_records_are_missing():
    segments = [SegmentFacts(0, 4, 10, 0, False), SegmentFacts(10, 12, 10, 0, True)]
    assert gone(plan_retention(segments, [TimeLimit(1, NOW)], high_watermark=9)) == []
    assert gone(plan_retention(segments, [TimeLimit(1, NOW)], high_watermark=10)) == [0]


@pytest.mark.parametrize(
    ("limit_ms", "times", "expected"),
    [
        (100, [NOW - 101, NOW - 100, NOW], [0]),
        (100, [NOW - 101, NOW - 101, NOW], [0, 10]),
        (100, [NOW - 100, NOW - 500, NOW], []),  # stops at the first that is too young
        (100, [NOW + 5000, 0, 0], []),  # the future holds back all behind it
        (100, [0, NOW + 5000, 0], [0]),
        (100, [0, 0, 0], [0, 10, 20]),
        (0, [NOW - 1, NOW, NOW], [0]),
        (-1, [0, 0, 0], []),
    ],
)
def test_time_takes_what_is_older(limit_ms, times, expected):
    segments = log_of(10, 10, 10, times=times)
    plan = plan_retention(segments, [TimeLimit(limit_ms, NOW)], high_watermark=30)
    assert gone(plan) == expected
    assert plan.needs_roll == (len(expected) == 3)


def test_reason_of_time_tells_the_age():
    plan = plan_retention(
        log_of(10, 10, times=[NOW - 7, NOW]), [TimeLimit(5, NOW)], high_watermark=20
    )
    assert plan.deletions == ((0, "its newest time is 7 ms ago, more than 5", "retention.ms"),)


@pytest.mark.parametrize(
    ("log_start", "expected"),
    [(0, []), (9, []), (10, [0]), (15, [0]), (20, [0, 10]), (99, [0, 10])],
)
def test_start_takes_what_lies_whole_below_it_and_never_the_active_segment(log_start, expected):
    plan = plan_retention(log_of(10, 10, 10), [BreachedStart(log_start)], high_watermark=30)
    assert gone(plan) == expected
    assert not plan.needs_roll
    if expected:
        assert plan.deletions[0].policy == "log-start"
        assert plan.deletions[0].reason == f"the log starts at {log_start}, the next segment at 10"


def test_policies_take_in_turn_from_what_the_former_left():
    """Goal: the order start, size, time shows in the reasons, and size counts only what is left."""
    segments = log_of(100, 100, 100, 100, 50, times=[0, 0, 0, NOW, NOW])
    policies: list[RetentionPolicy] = [BreachedStart(10), SizeLimit(250), TimeLimit(10, NOW)]
    plan = plan_retention(segments, policies, high_watermark=50)
    assert [(d.base_offset, d.policy) for d in plan.deletions] == [
        (0, "log-start"),
        (10, "retention.bytes"),
        (20, "retention.ms"),
    ]
    assert plan.new_log_start == 30


def test_policy_after_one_that_took_all_has_nothing_left():
    plan = plan_retention(
        log_of(10, times=[0]), [SizeLimit(0), TimeLimit(0, NOW)], high_watermark=10
    )
    assert gone(plan) == [0]
    assert plan.needs_roll


def test_nothing_to_delete_is_an_empty_plan():
    assert plan_retention(log_of(10), [], high_watermark=10) == RetentionPlan((), None, False)
    assert plan_retention([], [SizeLimit(0)], high_watermark=10) == RetentionPlan()


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, [BreachedStart(5), TimeLimit(604_800_000, NOW)]),
        ({"retention.bytes": 7}, [BreachedStart(5), SizeLimit(7), TimeLimit(604_800_000, NOW)]),
        ({"retention.bytes": 0, "retention.ms": 0}, [BreachedStart(5), SizeLimit(0), TimeLimit(0, NOW)]),
        ({"retention.ms": -1}, [BreachedStart(5)]),
        ({"cleanup.policy": "compact", "retention.bytes": 7}, [BreachedStart(5)]),
        ({"cleanup.policy": "", "retention.bytes": 7}, [BreachedStart(5)]),
        (
            {"cleanup.policy": "compact,delete", "retention.bytes": 7, "retention.ms": -1},
            [BreachedStart(5), SizeLimit(7)],
        ),
    ],
)  # fmt: skip
def test_policies_of_a_config(configs, expected):
    assert policies_for(LogConfig.of(configs), NOW, 5) == tuple(expected)


class TakeAll:
    """A policy from outside that gives more reasons than there are segments."""

    name = "mine"

    def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
        for _ in range(100):
            yield "because"


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentFacts]:
    bases = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=6)))
    end = bases[-1] + draw(st.integers(0, 10))
    segments = []
    for base, follower in pairwise([*bases, end]):
        last = base == bases[-1]
        size = draw(st.integers(1, 50)) if not last or end > base else 0
        next_offset = end if last else draw(st.integers(base + 1, follower))
        segments.append(
            SegmentFacts(base, next_offset, size, draw(st.integers(NOW - 50, NOW + 20)), last)
        )
    return segments


POLICIES = st.lists(
    st.one_of(
        st.builds(BreachedStart, st.integers(0, 70)),
        st.builds(SizeLimit, st.integers(-1, 200)),
        st.builds(TimeLimit, st.integers(-1, 60), st.just(NOW)),
        st.just(TakeAll()),
    ),
    max_size=4,
)


@settings(max_examples=sized(100, 300 * SCALE))
@given(logs(), POLICIES, st.integers(0, 75))
def test_no_policies_ever_break_what_holds(segments, policies, high_watermark):
    """Goal: a prefix goes, never past the high watermark; a segment remains or is rolled first."""
    high_watermark = min(high_watermark, segments[-1].next_offset)
    plan = plan_retention(segments, policies, high_watermark=high_watermark)
    bases = [segment.base_offset for segment in segments]
    assert gone(plan) == bases[: len(plan.deletions)]
    assert plan.needs_roll == (gone(plan) == bases)
    if not plan.deletions:
        assert plan.new_log_start is None
        return
    assert plan.new_log_start is not None
    assert plan.new_log_start <= high_watermark
    assert plan.new_log_start > plan.deletions[-1].base_offset
    if plan.needs_roll:
        assert segments[-1].size_bytes > 0
        assert plan.new_log_start == segments[-1].next_offset
    else:
        assert plan.new_log_start == bases[len(plan.deletions)]
    assert all(deletion.reason and deletion.policy for deletion in plan.deletions)


@given(logs(), st.integers(0, 200))
def test_size_never_goes_below_its_limit_and_takes_all_it_can(segments, limit):
    plan = plan_retention(segments, [SizeLimit(limit)], high_watermark=segments[-1].next_offset)
    total = sum(segment.size_bytes for segment in segments)
    left = total - sum(segment.size_bytes for segment in segments[: len(plan.deletions)])
    if plan.deletions:
        assert left >= limit
    if len(plan.deletions) < len(segments):
        kept = segments[len(plan.deletions)]
        assert left - kept.size_bytes < limit or (kept.is_active and kept.size_bytes == 0)


@given(logs())
def test_a_second_run_finds_nothing_more(segments):
    policies: list[RetentionPolicy] = [BreachedStart(20), SizeLimit(60), TimeLimit(5, NOW)]
    plan = plan_retention(segments, policies, high_watermark=segments[-1].next_offset)
    rest = segments[len(plan.deletions) :]
    again = plan_retention(rest, policies, high_watermark=segments[-1].next_offset)
    assert again == RetentionPlan()
