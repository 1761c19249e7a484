"""``--offsets``: the grammar of rpk, and what it means for a partition that starts and ends somewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import UsageError
from stratalog.inspect.range.offset_range import OffsetRange, milliseconds_of, parse_offsets
from tests.scale import SCALE, sized

NOW = 1_710_304_001_000
HOUR = 3_600_000
DAY = 1_710_288_000_000  # 2024-03-13


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("start", 20, None),
        ("end", 90, None),
        (":end", None, None),
        ("start:end", 20, None),
        ("35", 35, None),
        ("35:", 35, None),
        ("35:end", 35, None),
        (":40", None, 40),
        ("start:40", 20, 40),
        ("35:40", 35, 40),
        ("0:5", 0, 5),
        ("+3", 23, None),
        ("+3:", 23, None),
        ("+3:40", 23, 40),
        ("-5", 85, None),
        ("-5:end", 85, None),
        ("-5:-2", 85, 88),
        (":-5", None, 85),
        ("-500", -410, None),
        # The second is counted from where the first is.
        (":+10", None, 30),
        ("start:+10", 20, 30),
        ("50:+10", 50, 60),
        ("5:+10", 5, 30),  # what lies below the log start is not there
        ("-10:+4", 80, 84),
        ("+5:+10", 25, 35),
    ],
)
def test_offsets_of_a_log_from_20_up_to_90(text, start, end):
    wanted = parse_offsets(text, NOW)
    assert wanted.resolve(20, 90) == (start, end)
    assert (wanted.start_time, wanted.end_time) == (None, None)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("@1648021901749", 1648021901749, None),
        ("@1648021901749:1748021901749", 1648021901749, 1748021901749),
        ("@1648021901:1748021901", 1648021901000, 1748021901000),
        ("@2024-03-13", DAY, None),
        ("@2024-03-13:", DAY, None),
        ("@:2024-03-13", None, DAY),
        ("@2024-03-13:2024-03-14", DAY, DAY + 24 * HOUR),
        ("@2024-03-13:1h", DAY, DAY + HOUR),
        ("@2024-03-13T01:00:00Z:2024-03-13T02:00:00.5Z", DAY + HOUR, DAY + 2 * HOUR + 500),
        ("@2024-03-13T01:00:00.Z:30m", DAY + HOUR, DAY + HOUR + HOUR // 2),
        ("@2024-03-13T03:00:00+02:00:1h", DAY + HOUR, DAY + 2 * HOUR),
        ("@2024-03-13T01:00:00", DAY + HOUR, None),
        ("@-1h", NOW - HOUR, None),
        ("@-48h:-24h", NOW - 48 * HOUR, NOW - 24 * HOUR),
        ("@-2d", NOW - 48 * HOUR, None),
        ("@-1m:end", NOW - 60_000, None),
        ("@:-1h", None, NOW - HOUR),
        ("@1h:", NOW + HOUR, None),
        ("@1h30m", NOW + HOUR + HOUR // 2, None),
        ("@-1m3ms", NOW - 60_003, None),
        ("@-1.5h:-3ms", NOW - HOUR - HOUR // 2, NOW - 3),
        ("@-1h:3s", NOW - HOUR, NOW + 3000),  # both durations: both from now
        ("@:end", None, None),
    ],
)
def test_times(text, start, end):
    assert parse_offsets(text, NOW) == OffsetRange(start_time=start, end_time=end)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "a", "1:a", "a:1", "+", "-", "+a", "-a", "1:2:3", "1-2", "start:start", "5:start",
        "oldest", " 1", "1 ", "1.5", "٣", "99999999999999999999", "@", "@:", "@end", "@5", "@12345678901",
        "@2024-13-01", "@2024-02-30", "@2024-3-1", "@yesterday", "@-", "@1x", "@-1h:2:3",
        "@1648021901749:asdf", "@2024-03-13T25:00:00Z", "@0000-01-01", "--1", "@--1h",
    ],
)  # fmt: skip
def test_what_is_not_in_the_grammar_is_refused_with_examples(text):
    with pytest.raises(UsageError, match="@-1h"):
        parse_offsets(text, NOW)


@pytest.mark.parametrize(
    "text", ["90:39", "90:90", "-2:-5", "@-1h:-2h", "@2024-03-13:2024-03-12", "@2024-03-13:-1h"]
)
def test_a_range_that_ends_before_it_begins_is_refused(text):
    with pytest.raises(UsageError, match="end before they start"):
        parse_offsets(text, NOW)


def test_only_what_is_needed_is_asked_for():
    texts = ("5", "5:9", ":end", "+5", "-5", ":+5", "5:+5", "-5:+2", "start:-5", "@-1h:end")
    ranges = {text: parse_offsets(text, NOW) for text in texts}
    needs = {text: (each.needs_start, each.needs_end) for text, each in ranges.items()}
    assert needs == {
        "5": (False, False),
        "5:9": (False, False),
        ":end": (False, False),
        "+5": (True, False),
        "-5": (False, True),
        ":+5": (True, False),
        "5:+5": (True, False),
        "-5:+2": (True, True),
        "start:-5": (True, True),
        "@-1h:end": (False, False),
    }


def test_times_do_not_pass_through_floats():
    zone = timezone(timedelta(hours=-7))
    for year in (1900, 1969, 1970, 2024, 9999):
        time = datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=zone)
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
        assert milliseconds_of(time) == since // timedelta(milliseconds=1)


@settings(max_examples=sized(100, 300 * SCALE))
@given(st.text("@:+-0123456789starend mhTZ.", max_size=30) | st.text(max_size=12))
def test_any_text_gives_a_range_or_a_usage_error(text):
    try:
        wanted = parse_offsets(text, NOW)
    except UsageError:
        return
    start, end = wanted.resolve(0, 10)
    assert start is None or isinstance(start, int)
    assert end is None or isinstance(end, int)
