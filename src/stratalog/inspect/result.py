"""The result of a question about logs: fields, and columns of plain values.

Every command returns one; the command line renders it as a table, JSON, CSV or Arrow, and a page can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowResult", "Chunk", "Field", "Kind", "Result", "Same", "chunk_of_rows"]


class Kind(Enum):
    """What the values of a field are. None is a value of every kind."""

    TEXT = auto()
    INTEGER = auto()
    BOOLEAN = auto()
    TIME = auto()  # milliseconds since 1970
    BINARY = auto()
    HEADERS = auto()  # pairs of text and bytes
    JSON = auto()  # lists and dicts of JSON's own values


class Field(NamedTuple):
    """A column of a result. Some are too much for a table, and only in the other outputs."""

    name: str
    kind: Kind
    in_table: bool = True


@dataclass(frozen=True, slots=True)
class Same:
    """A column of a chunk that has one value throughout."""

    value: Any


class Chunk(NamedTuple):
    """Some rows of a result, column by column in the order of its fields."""

    rows: int
    columns: Sequence[Sequence[Any] | Same]


class ArrowResult(NamedTuple):
    """A result as Arrow: the schema, and record batches one at a time."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows with named fields. Nothing of it is computed before it is shown.

    ``arrow`` gives the same rows as Arrow where there is a shorter way than over plain values. Tables
    also show ``total``, a last row, and ``notes``, lines below.

    ``runs_to_its_end``: the exit code depends on all rows, so they are computed even if the reader of the
    output has gone away. ``done`` says what the command has changed: if the rows cannot be printed, the error
    says so.
    """

    fields: tuple[Field, ...]
    chunks: Iterable[Chunk]
    arrow: Callable[[], ArrowResult] | None = None
    total: Callable[[], tuple[Any, ...] | None] = lambda: None
    notes: Callable[[], Iterable[str]] = tuple
    runs_to_its_end: bool = False
    done: str = ""


def chunk_of_rows(rows: Sequence[tuple[Any, ...]]) -> Chunk:
    """Return a chunk of rows, of which there is at least one."""
    return Chunk(len(rows), list(zip(*rows, strict=True)))
