"""Conditions on key, value and headers: what they match, and what is not one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import UsageError
from stratalog.records.arrow import HEADERS_TYPE
from stratalog.rewrite.erase.condition import parse_condition

ROWS = [
    (b"a", b'{"email":"ada@example.org"}', [("user", b"ada"), ("user", b"bob")]),
    (b"b", None, [("trace id", b"1"), ("user", None)]),
    (None, b"100% sure_thing", []),
    (b"\x00\xff", "größer".encode(), [("user", b"cy")]),
    (b"it's", b"line\nbreak", []),
]


def matching(text: str, rows: Sequence[tuple[Any, ...]] = ROWS) -> list[int]:
    keys, values, headers = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(len(rows)), pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(
                [[{"key": name, "value": value} for name, value in each] for each in headers],
                HEADERS_TYPE,
            ),
        ],
        names=["offset", "key", "value", "headers"],
    )
    found: list[int] = parse_condition(text).matching(batch).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key = 'a'", [0]),
        ("KEY == 'a' OR key = 'b'", [0, 1]),
        ("key != 'a'", [1, 3, 4]),
        ("not key = 'a'", [1, 3, 4]),
        ("key is null", [2]),
        ("key is not null and value is not null", [0, 3, 4]),
        ("key in ('a', 'b', 'c')", [0, 1]),
        ("key not in ('a', 'b')", [3, 4]),
        ("key = x'00ff'", [3]),
        ("key = 'it''s'", [4]),
        ("value like '%ada@%'", [0]),
        ("value like 'größer'", [3]),
        ("value like 'gr__er'", [3]),
        ("value like '100\\% sure\\_thing'", [2]),
        ("value like '100% sure'", []),
        ("value like 'line%break'", [4]),
        ("value not like '%ada%'", [2, 3, 4]),
        ("header.user = 'bob'", [0]),
        ("header.user like '%'", [0, 3]),
        ("header.user is null", [1, 2, 4]),
        ("header.user is not null", [0, 3]),
        ("header['trace id'] = '1'", [1]),
        ("not header.user = 'ada'", [3]),
        ("header.user not in ('ada', 'eve')", [3]),
        ("not header.user like 'a%'", [3]),
        ("not header.user != 'ada'", []),
        ("header.user != 'ada'", [0, 3]),
        ("header.none = 'x' or key = 'a'", [0]),
        ("(key = 'a' or key = 'b') and not value is null", [0]),
        ("key = 'b' and value = 'x' or key = 'a'", [0]),
    ],
)
def test_condition_matches(text: str, found: list[int]) -> None:
    assert matching(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "key", "key =", "key = a", "= 'a'", "key = 'a", "key = 'a' and", "offset = '1'", "key = x'0'",
        "key = 'a')", "(key = 'a'", "header = 'a'", "header. = 'a'", "header['a' = 'b'", "key like",
        "key in ()", "key is 'a'", "key = 'a'; drop", "__import__('os')", "key = 'a' 'b'", "not", "key < 'a'",
    ],
)  # fmt: skip
def test_what_is_not_a_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        parse_condition(text)


def test_a_condition_that_is_too_deep_or_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="levels"):
        parse_condition("(" * 500 + "key = 'a'" + ")" * 500)
    with pytest.raises(UsageError, match="levels"):
        parse_condition("not " * 500 + "key = 'a'")
    with pytest.raises(UsageError, match="characters"):
        parse_condition("key = '" + "a" * (1 << 17) + "'")


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        parse_condition(text)
    except UsageError:
        return


@given(st.text(alphabet="ab%_\\'é", max_size=8), st.text(alphabet="abé'%_\\", max_size=8))
def test_like_agrees_with_a_simple_matcher(pattern: str, value: str) -> None:
    text = "value like '" + pattern.replace("'", "''") + "'"
    expected = [0] if is_like(pattern, value) else []
    assert matching(text, [(None, value.encode(), [])]) == expected


def is_like(pattern: str, value: str) -> bool:
    if not pattern:
        return not value
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(is_like(rest, value[at:]) for at in range(len(value) + 1))
    if first == "\\" and rest:
        first, rest = rest[0], rest[1:]
    elif first == "_":
        return bool(value) and is_like(rest, value[1:])
    return value[:1] == first and is_like(rest, value[1:])


def test_a_null_header_is_neither_equal_nor_unequal() -> None:
    rows = [
        (b"0", b"", [("user", None)]),
        (b"1", b"", [("user", None), ("user", b"bob")]),
        (b"2", b"", [("user", None), ("user", b"ada")]),
        (b"3", b"", [("user", b"bob"), ("other", None)]),
    ]
    assert matching("not header.user = 'ada'", rows) == [3]
    assert matching("header.user = 'ada'", rows) == [2]
    assert matching("header.user is null", rows) == [0]
    assert matching("not header.user is null", rows) == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key in (" + ", ".join(f"'{n}'" for n in range(1200)) + ", 'a')", [0]),
        ("key not in (" + ", ".join(f"'{n}'" for n in range(1200)) + ")", [0, 1, 3, 4]),
        (" or ".join(["key = 'b'"] * 1200), [1]),
        (" and ".join(["key != 'a'"] * 1200), [1, 3, 4]),
        ("header.user in ('x', 'ada')", [0]),
    ],
    ids=["in", "not in", "or", "and", "header in"],
)
def test_long_conditions_need_no_deep_stack(text: str, found: list[int]) -> None:
    assert matching(text) == found


def test_bytes_of_a_command_line_that_are_not_utf8() -> None:
    assert matching("key = '\0\udcff'") == [3]
    assert matching("key in ('\0\udcff', 'a')") == [0, 3]
    for wrong in ("key = '\ud800'", "header['\udcff'] = 'a'", "key like '\ud800'"):
        with pytest.raises(UsageError, match="UTF-8"):
            parse_condition(wrong)
