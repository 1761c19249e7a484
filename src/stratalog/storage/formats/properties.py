"""Texts of Java properties, read as ``java.util.Properties`` reads them: ``meta.properties`` and
``server.properties``.

A line is a name and a value with ``=``, ``:`` or blanks between them. A line that ends in a backslash goes on
in the next one; ``#`` and ``!`` begin a comment. The bytes are Latin-1; ``\\uXXXX`` stands for any other
character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["PropertiesError", "Property", "parse_properties"]

_LINE_END: Final = re.compile(r"\r\n|[\r\n]")
_BLANKS: Final = " \t\f"
# A name ends at the first '=', ':' or blank that is not escaped; blanks around the separator mean nothing.
_PAIR: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A name, its value, and the number of the line on which it begins."""

    name: str
    value: str
    line: int


class PropertiesError(ValueError):
    """A line that Java refuses to read, too."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(f"line {line}: {detail}")
        self.line = line
        self.detail = detail


def parse_properties(data: bytes) -> list[Property]:
    """Return the properties of a text in their order. If a name is there twice, the later one counts.
    PropertiesError if an escape is incomplete."""
    found = []
    for number, line in _logical_lines(data.decode("latin-1")):
        pair = _PAIR.fullmatch(line)
        assert pair is not None, "the pattern takes every line"
        try:
            found.append(Property(_unescape(pair[1]), _unescape(pair[2]), number))
        except ValueError as error:
            raise PropertiesError(number, str(error)) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are neither blank nor comments, each with the lines that continue it, and the number
    of the first of them."""
    begun, first = "", 0
    goes_on = False
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(_BLANKS)
        if not begun:
            # As in Java, also after a line that is only a backslash.
            if line.startswith(("#", "!")):
                goes_on = False
                continue
            first = first if goes_on else number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if goes_on else line
        if not goes_on and begun:
            yield first, begun
            begun = ""
    if begun:
        yield first, begun


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise ValueError("\\u is not followed by four hexadecimal digits")
    return _ESCAPED.get(escaped, escaped)
