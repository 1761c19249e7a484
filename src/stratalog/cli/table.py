"""A table of text, aligned, that starts before the last row is known.

The first rows say how wide each column is; later ones keep to that. Only columns of bytes give way when
the terminal is narrow: a path or a number that is cut short is no use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final

from stratalog.cli.terminal import cut, display_width, pad, printable, shows_colour, table_width
from stratalog.inspect.result import Chunk, Field, Kind, Same
from stratalog.types import NO_TIMESTAMP

__all__ = ["Table", "fitted"]

_ROWS_MEASURED: Final = 1000
_FLEXIBLE: Final = (Kind.BINARY, Kind.HEADERS, Kind.JSON)
_FLEXIBLE_WIDTH_MIN: Final = 12
_FLEXIBLE_WIDTH_MAX: Final = 200
_CHARACTER_BYTES_MAX: Final = 4
_RIGHT: Final = (Kind.INTEGER,)
_BETWEEN: Final = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Table:
    """Lines of a table, chunk by chunk. Holds the first rows back until it knows their widths."""

    def __init__(self, fields: Sequence[Field], stream: IO[Any]) -> None:
        self._shown = [number for number, field in enumerate(fields) if field.in_table]
        self._fields = [fields[number] for number in self._shown]
        self._width = table_width(stream)
        self._colour = shows_colour(stream)
        self._widths: list[int] = []
        self._held: list[tuple[str, ...]] = []

    def lines(self, chunk: Chunk) -> str:
        """The rows of a chunk; nothing while there are too few to measure."""
        columns = []
        widths = self._widths or [_FLEXIBLE_WIDTH_MAX] * len(self._shown)
        for number, field, width in zip(self._shown, self._fields, widths, strict=True):
            values = chunk.columns[number]
            if isinstance(values, Same):
                columns.append([_cell(field.kind, values.value, width)] * chunk.rows)
            else:
                columns.append([_cell(field.kind, value, width) for value in values])
        rows = list(zip(*columns, strict=True))
        if self._widths:
            return self._text(rows)
        self._held += rows
        return self._begin() if len(self._held) >= _ROWS_MEASURED else ""

    def ending(self, total: tuple[Any, ...] | None, notes: Iterable[str]) -> str:
        """What is left: rows held back, the last row, and the lines below."""
        text = [] if self._widths else [self._begin()]
        if total is not None:
            shown = [total[number] for number in self._shown]
            cells = ["" if value is None else printable(str(value)) for value in shown]
            text.append(self._emphasised(self._line(cells)))
        lines = [printable(note) + "\n" for note in notes]
        return "".join([*text, *(["\n"] if lines else []), *lines])

    def _begin(self) -> str:
        rows, self._held = self._held, []
        names = tuple(field.name for field in self._fields)
        natural = [max(map(display_width, column)) for column in zip(names, *rows, strict=True)]
        flexible = [field.kind in _FLEXIBLE for field in self._fields]
        self._widths = fitted(natural, flexible, self._width)
        return self._emphasised(self._line(names)) + self._text(rows)

    def _text(self, rows: Sequence[Sequence[str]]) -> str:
        return "".join([self._line(row) for row in rows])

    def _line(self, cells: Sequence[str]) -> str:
        padded = [
            pad(
                cut(cell, width) if field.kind in _FLEXIBLE else cell,
                width,
                right=field.kind in _RIGHT,
            )
            for cell, width, field in zip(cells, self._widths, self._fields, strict=True)
        ]
        return _BETWEEN.join(padded).rstrip() + "\n"

    def _emphasised(self, line: str) -> str:
        return f"{_BOLD}{line[:-1]}{_PLAIN}\n" if self._colour else line


def fitted(natural: Sequence[int], flexible: Sequence[bool], width: int) -> list[int]:
    """Widths of columns that fit ``width``: the widest flexible ones give way, down to a minimum."""
    widths = [
        min(size, _FLEXIBLE_WIDTH_MAX) if gives else size
        for size, gives in zip(natural, flexible, strict=True)
    ]
    room = width - len(_BETWEEN) * (len(widths) - 1)
    while sum(widths) > room:
        wide = [n for n, gives in enumerate(flexible) if gives and widths[n] > _FLEXIBLE_WIDTH_MIN]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _cell(kind: Kind, value: Any, width: int) -> str:
    """A value as text; what is certainly behind ``width`` cells may be left out already."""
    return "null" if value is None else _CELLS[kind](value, width)


def _bytes_cell(value: bytes, width: int) -> str:
    head = value[: _CHARACTER_BYTES_MAX * (width + 1)]
    return printable(head.decode("utf-8", "surrogateescape"))


def _headers_cell(headers: Sequence[tuple[str, bytes | None]], width: int) -> str:
    cells = [
        f"{printable(key)}={_cell(Kind.BINARY, value, width)}"
        for key, value in headers[: width + 1]
    ]
    return " ".join(cells)


def _time_cell(time_ms: int, _: int) -> str:
    if time_ms == NO_TIMESTAMP:
        return "none"
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z"


_CELLS: Final[dict[Kind, Callable[[Any, int], str]]] = {
    Kind.TEXT: lambda value, _: printable(value),
    Kind.INTEGER: lambda value, _: str(value),
    Kind.TIME: _time_cell,
    Kind.BOOLEAN: lambda value, _: json.dumps(value),
    Kind.BINARY: _bytes_cell,
    Kind.HEADERS: _headers_cell,
    Kind.JSON: lambda value, _: printable(json.dumps(value)),
}
