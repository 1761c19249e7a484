"""Texts of Java properties are read as ``java.util.Properties`` reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.formats.properties import PropertiesError, Property, parse_properties


def pairs(data: bytes) -> dict[str, str]:
    return {each.name: each.value for each in parse_properties(data)}


# What Java 17 says of the same bytes.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"# a=b\n! c=d\n   # e=f\n\n \t\x0c\n", {}),
        (b"a=1\r\nb:2\rc 3\nd  =  4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        (b"a==1\nb=:1\nc  d=e\n", {"a": "=1", "b": ":1", "c": "d=e"}),
        (b"a\nb=\n=c\n", {"a": "", "b": "", "": "c"}),
        (b"a\\ b\\=c\\:d=e\n", {"a b=c:d": "e"}),
        (b"a=\\u0041\\t\\n\\r\\f\\\\\\q\n", {"a": "A\t\n\r\f\\q"}),
        (b"a=one,\\\n   two\\\n#three\nb=2", {"a": "one,two#three", "b": "2"}),
        (b"a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        (b"a=x\\", {"a": "x"}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a=\xe9\x85\n", {"a": "\xe9\x85"}),
        (b"a=x\\\n\nb=2", {"a": "x", "b": "2"}),
        (b"\\\n#c\na=1", {"a": "1"}),
        (b"\\\n  a=1", {"a": "1"}),
        (b"a\\\n=1", {"a": "1"}),
        (b"a=1\\\r\n  2\\\r  3", {"a": "123"}),
        (b"a b#c", {"a": "b#c"}),
    ],
)
def test_text_is_read_as_java_reads_it(data, expected):
    assert pairs(data) == expected


def test_property_knows_the_line_on_which_it_begins():
    data = b"# one\r\na=1\r\n\r\nb=2,\\\r\n  3\r\n\\\r\nc=4\rd=5"
    assert parse_properties(data) == [
        Property("a", "1", 2), Property("b", "2,3", 4), Property("c", "4", 6), Property("d", "5", 8),
    ]  # fmt: skip


@pytest.mark.parametrize("tail", [b"\\u12g4", b"\\u12", b"\\u", b"\\u 123", b"\\U\\u"])
@pytest.mark.parametrize("head", [b"a=", b"a", b""])
def test_incomplete_escape_is_an_error_with_its_line(head, tail):
    with pytest.raises(PropertiesError, match=r"line 3: .u is not followed by four hex") as caught:
        parse_properties(b"#\nx=\\u0041\n" + head + tail)
    assert caught.value.line == 3


def escaped(text: str, special: str) -> str:
    """A text as ``Properties.store`` writes it."""
    shown = ""
    for char in text:
        if char in special:
            shown += "\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}.get(char, char)
        elif " " <= char <= "~":
            shown += char
        else:
            shown += "".join(f"\\u{unit:04x}" for unit in units(char))
    return shown


def units(char: str) -> list[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


CHARS = st.characters(max_codepoint=0xFFFF)
NAME, VALUE = st.text(CHARS, min_size=1, max_size=12), st.text(CHARS, max_size=12)


@given(
    st.lists(st.tuples(NAME, VALUE), max_size=6),
    st.sampled_from(["=", ":", " ", "\t=  ", " : "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\\\n", "\\\r\n \t"]),
)
def test_everything_that_java_stores_comes_back(written, separator, line_end, fold):
    lines = []
    for name, value in written:
        special = "\\=:#! \t\n\r\f"
        lines += [
            "# a comment",
            "",
            escaped(name, special) + separator + fold + escaped(value, special),
        ]
    read = parse_properties(line_end.join(lines).encode("ascii"))
    assert [(each.name, each.value) for each in read] == written


@given(st.binary(max_size=60))
def test_any_bytes_give_properties_or_one_error(data):
    try:
        read = parse_properties(data)
    except PropertiesError:
        return
    lines = len(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    assert [each.line for each in read] == sorted({each.line for each in read})
    assert all(1 <= each.line <= lines for each in read)


BLANKS = " \t\f"


def java_lines(text: str) -> list[str]:
    """The logical lines of a text, by the state machine of ``java.util.Properties``."""
    lines, line, at = [], "", 0
    skips_blanks, is_continued, is_comment, after_backslash = True, False, False, False
    while at < len(text):
        char = text[at]
        at += 1
        if is_comment:
            if char in "\r\n":
                is_comment, skips_blanks = False, True
            continue
        if skips_blanks:
            if char in BLANKS or (not is_continued and char in "\r\n"):
                continue
            skips_blanks = is_continued = False
        if not line and char in "#!":
            is_comment = True
        elif char not in "\r\n":
            line += char
            after_backslash = char == "\\" and not after_backslash
        elif after_backslash:
            line = line[:-1]
            skips_blanks, is_continued, after_backslash = True, True, False
            at += char == "\r" and text[at : at + 1] == "\n"
        elif line:
            lines.append(line)
            line, skips_blanks = "", True
        else:
            skips_blanks = True
    line = line[:-1] if after_backslash else line
    return [*lines, line] if line else lines


PARTS = st.sampled_from(["\\", "\\\\", "\n", "\r", "\r\n", " ", "\t", "#", "!", "a", "=", ":", "b"])


@given(st.lists(PARTS, max_size=14).map("".join))
def test_lines_are_joined_as_the_state_machine_of_java_joins_them(text):
    alone = [parse_properties(line.encode()) for line in java_lines(text)]
    assert all(len(each) == 1 for each in alone)
    found = [(each.name, each.value) for each in parse_properties(text.encode())]
    assert found == [(each.name, each.value) for (each,) in alone]
