"""Text that is safe and aligned on a terminal.

What comes out of a log was written by strangers: nothing of it reaches a terminal that could move the
cursor, change the colours or reverse the reading order.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from typing import IO, Any, Final

__all__ = ["cut", "display_width", "pad", "printable", "shows_colour", "table_width"]

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PIPED_WIDTH: Final = 120


def printable(text: str) -> str:
    """The text with everything escaped that is not a visible character or a plain space."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def display_width(text: str) -> int:
    """How many cells a terminal gives the text."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in at most ``width`` cells, with … where something is left out."""
    if display_width(text) <= width:
        return text
    used = 0
    for number, char in enumerate(text):
        used += _cells(char)
        if used > width - 1:
            return text[:number] + "…"
    raise AssertionError("a text that is too wide has a place to be cut at")


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces to ``width`` cells, in front of it when ``right``."""
    spaces = " " * (width - display_width(text))
    return spaces + text if right else text + spaces


def table_width(stream: IO[Any]) -> int:
    """How wide a table may be: ``COLUMNS``, or the terminal's width; enough for a page in a pipe."""
    if stream.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return _PIPED_WIDTH


def shows_colour(stream: IO[Any]) -> bool:
    """Whether colours are wanted: on a terminal that has them, unless ``NO_COLOR`` says no."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
