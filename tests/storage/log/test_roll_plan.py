"""When a segment rolls: each reason at its limit and one beyond, and where the next segment starts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.log.roll_plan import (
    RollReason,
    draw_jitter,
    max_segment_ms,
    new_base_offset,
    plan_roll,
)
from stratalog.storage.log_config import LogConfig

SPAN = 2**31 - 1
CALM: dict[str, Any] = {
    "size": 500,
    "segment_bytes": 1000,
    "append_bytes": 100,
    "max_timestamp": 10_000,
    "first_batch_timestamp": 9_000,
    "now_ms": 50_000,
    "created_ms": 50_000,
    "max_segment_ms": 1_000,
    "jitter_ms": 0,
    "offset_index_full": False,
    "time_index_full": False,
    "base_offset": 70,
    "max_offset": 90,
}


def reason_for(**changes: Any) -> RollReason | None:
    return plan_roll(**{**CALM, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        # An append that just fits does not roll; a segment is at most as large as it may be.
        ({"append_bytes": 500}, None),
        ({"append_bytes": 501}, RollReason.SIZE),
        ({"size": 0, "append_bytes": 1000}, None),
        ({"size": 0, "append_bytes": 1001}, RollReason.SIZE),
        ({"size": 1000, "append_bytes": 1}, RollReason.SIZE),
        # By the records' clock, which need not be ours: age equal to the limit does not roll.
        ({"max_timestamp": 10_001}, RollReason.AGE),
        ({"max_timestamp": 2**63 - 1}, RollReason.AGE),
        ({"max_timestamp": -1}, None),
        ({"now_ms": 2**62}, None),
        ({"jitter_ms": 1}, RollReason.AGE),
        ({"jitter_ms": 1, "max_timestamp": 9_999}, None),
        ({"max_segment_ms": 999}, RollReason.AGE),
        ({"size": 0, "max_timestamp": 2**62}, None),
        ({"first_batch_timestamp": 0, "max_timestamp": 1_000}, None),
        ({"first_batch_timestamp": 0, "max_timestamp": 1_001}, RollReason.AGE),
        # By ours where the first batch has no time.
        ({"first_batch_timestamp": -1}, None),
        ({"first_batch_timestamp": -1, "now_ms": 51_000}, None),
        ({"first_batch_timestamp": -1, "now_ms": 51_001}, RollReason.AGE),
        ({"first_batch_timestamp": -1, "now_ms": 51_001, "size": 0}, None),
        ({"first_batch_timestamp": -1, "max_timestamp": 2**62}, None),
        ({"offset_index_full": True}, RollReason.OFFSET_INDEX_FULL),
        ({"time_index_full": True}, RollReason.TIME_INDEX_FULL),
        ({"offset_index_full": True, "time_index_full": True}, RollReason.OFFSET_INDEX_FULL),
        ({"size": 0, "offset_index_full": True}, RollReason.OFFSET_INDEX_FULL),
        ({"max_offset": 70 + SPAN}, None),
        ({"max_offset": 71 + SPAN}, RollReason.OFFSET_SPAN),
        ({"max_offset": 70}, None),
        ({"max_offset": 69}, RollReason.OFFSET_SPAN),
        ({"size": 0, "max_offset": 71 + SPAN}, RollReason.OFFSET_SPAN),
        # The first reason that holds is the one that is told.
        ({"append_bytes": 501, "max_timestamp": 2**62, "time_index_full": True}, RollReason.SIZE),
        ({"max_timestamp": 2**62, "time_index_full": True}, RollReason.AGE),
        ({"time_index_full": True, "max_offset": 69}, RollReason.TIME_INDEX_FULL),
    ],
)
def test_reason_to_roll(changes, reason):
    assert reason_for(**changes) is reason


@given(
    size=st.integers(0, 1000),
    append_bytes=st.integers(1, 1000),
    max_timestamp=st.integers(-1, 20_000),
    first_batch_timestamp=st.integers(-1, 20_000),
    jitter_ms=st.integers(0, 999),
)
def test_no_roll_means_that_it_fits_and_an_empty_segment_takes_what_fits(**changes):
    if reason_for(**changes) is None:
        assert changes["size"] + changes["append_bytes"] <= 1000
    assert reason_for(**{**changes, "size": 0}) is None


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, 604_800_000),
        ({"segment.ms": 100, "max.compaction.lag.ms": 50}, 100),
        ({"segment.ms": 100, "max.compaction.lag.ms": 50, "cleanup.policy": "compact"}, 50),
        ({"segment.ms": 100, "max.compaction.lag.ms": 50, "cleanup.policy": "compact,delete"}, 50),
        ({"segment.ms": 100, "cleanup.policy": "compact"}, 100),
    ],
)
def test_age_limit_of_a_config(configs, expected):
    assert max_segment_ms(LogConfig.of(configs)) == expected


def test_jitter_is_none_unless_asked_for():
    assert draw_jitter(LogConfig(), random.Random(1)) == 0


@pytest.mark.parametrize(("jitter", "age", "widest"), [(10, 100, 10), (100, 10, 10), (1, 1, 1)])
def test_jitter_stays_below_both_limits_and_reaches_them(jitter, age, widest):
    config = LogConfig.of(segment_jitter_ms=jitter, segment_ms=age)
    source = random.Random(7)
    assert {draw_jitter(config, source) for _ in range(500)} == set(range(widest))


@pytest.mark.parametrize(
    ("first", "last", "end", "expected"),
    [
        (100, 110, 100, 100),
        (105, 110, 100, 105),  # a gap: the file is named by what is in it
        (90, 110, 100, 100),
        (None, 110, 100, 100),
        (None, SPAN + 150, 100, 150),
        (0, 5, 0, 0),
    ],
)
def test_next_segment_starts_at_the_append_or_at_the_end(first, last, end, expected):
    assert new_base_offset(first, last, end) == expected


@given(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 2**62))
def test_segment_at_the_new_base_holds_an_append_of_unknown_start(end, reach, start):
    """Goal: what rolled for its span fits into the segment that it got."""
    last = end + reach
    base = new_base_offset(None, last, end)
    assert base >= end
    assert 0 <= last - base <= SPAN
