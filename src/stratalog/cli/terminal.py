"""Text that is safe and aligned on a terminal.

What comes out of a log was written by strangers: nothing of it reaches a terminal that could move the
cursor, change the colours or reverse the reading order.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from functools import cache
from typing import IO, Any, Final

__all__ = [
    "cut",
    "display_width",
    "forget_stdout",
    "pad",
    "printable",
    "shows_colour",
    "table_width",
]

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PIPED_WIDTH: Final = 120


def printable(text: str) -> str:
    """The text with everything escaped that is not a visible character or a plain space.

    Bytes that are not UTF-8, as ``surrogateescape`` hands them over, become \\xNN.
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Escapes(dict[int, str]):
    """What each character is shown as; learned as they come."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shown = self[code] = char if char.isprintable() else _SHORT.get(char) or _escaped(code)
        return shown


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # where surrogateescape puts single bytes
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES: Final = _Escapes()


def display_width(text: str) -> int:
    """How many cells a terminal gives the text."""
    return len(text) if text.isascii() else sum(map(_cells, text))


@cache
def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in at most ``width`` cells, with … where something is left out."""
    if text.isascii():
        return text if len(text) <= width else text[: width - 1] + "…"
    used = place = 0
    for number, char in enumerate(text):
        used += _cells(char)
        if used <= width - 1:
            place = number + 1
        if used > width:
            return text[:place] + "…"
    return text


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces to ``width`` cells, in front of it when ``right``."""
    if text.isascii():
        return text.rjust(width) if right else text.ljust(width)
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


def forget_stdout() -> None:
    """Send what is still buffered nowhere: the reader of the output has gone away, and flushing the buffer at
    exit must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
