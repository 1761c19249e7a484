"""Columns of any DataFrame as those of records: which is the key, which the value, and of what types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FIELDS", "WHOLE_ROW", "as_records", "sort_order"]

#: What a record is made of; each may be given as a SQL expression.
FIELDS: Final = ("topic", "partition", "key", "value", "timestamp", "headers")
#: As a value: the whole row, as JSON.
WHOLE_ROW: Final = "*"
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_ORDER: Final = re.compile(
    r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL
)
#: Nothing is left out of it: Spark's own way drops nulls, and times below a millisecond.
_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_NESTED: Final = ("struct<", "array<", "map<", "variant")


def as_records(frame: DataFrame, expressions: Mapping[str, str], *, topic: str | None) -> DataFrame:
    """The rows with the columns that the sink takes. A field without an expression is the column of its
    name, if there is one. UsageError where no value can be made, or no topic."""
    from pyspark.sql import functions as f

    for name in expressions:
        if name not in FIELDS:
            raise UsageError(f"a record has no {name!r}: it has {', '.join(FIELDS)}")
    chosen: dict[str, Column] = {}
    for name in FIELDS:
        expression = expressions.get(name)
        if expression == WHOLE_ROW:
            if name not in ("key", "value"):
                raise UsageError(f"a whole row can be a key or a value, not a {name}")
            chosen[name] = f.to_json(f.struct("*"), dict(_JSON))
        elif expression is not None:
            chosen[name] = f.expr(expression)
        elif name in frame.columns and not (name == "topic" and topic is not None):
            chosen[name] = f.col(f"`{name}`")
    if "value" not in chosen:
        raise UsageError(
            "no column is called value: give an expression for it, or '*' for the whole row as JSON; "
            f"there are {', '.join(frame.columns)}"
        )
    if "topic" not in chosen and topic is None:
        raise UsageError("no topic: name it, or give an expression for it")
    made = frame.select(*(column.alias(name) for name, column in chosen.items()))
    kinds = {field.name: field.dataType.simpleString() for field in made.schema.fields}
    return made.select(*(_fitted(name, kinds[name]).alias(name) for name in chosen))


def sort_order(text: str) -> Column:
    """``offset``, ``at desc nulls last``: an expression, and which way. An expression alone would take the
    second word for its name."""
    from pyspark.sql import functions as f

    found = _ORDER.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a valid sort expression")
    way = (found[2] or "asc").lower()
    nulls = "" if found[3] is None else f"_nulls_{found[3].lower()}"
    ordered: Column = getattr(f.expr(found[1]), f"{way}{nulls}")()
    return ordered


def _fitted(name: str, kind: str) -> Column:
    """A column as the type that the sink takes, where that is plain; others are left for it to refuse."""
    from pyspark.sql import functions as f

    column = f.col(name)
    if name in ("key", "value"):
        if kind in ("binary", "string", "void"):
            return column
        is_nested = kind.startswith(_NESTED)
        return f.to_json(column, dict(_JSON)) if is_nested else column.cast("string")
    if name == "timestamp":
        if kind in ("bigint", "int"):
            return f.timestamp_millis(column)
        return column.cast("timestamp") if kind in ("string", "date", "timestamp_ntz") else column
    if name == "partition":
        return column.cast("int") if kind in ("bigint", "smallint", "tinyint") else column
    if name == "headers" and kind in ("map<string,string>", "map<string,binary>"):
        return f.map_entries(column).cast(_HEADERS)
    return column
