"""The columns of the source: those of Spark's Kafka source, by its names and types, and those of the batches.

Every column is nullable, as there: what Spark is told and what the batches say must agree both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.spark.options.options import Given

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "COLUMNS",
    "DEFAULT_NAMES",
    "SourceColumn",
    "check_schema",
    "column_names",
    "ddl_of",
    "names_of",
    "spark_schema",
]


class SourceColumn(NamedTuple):
    """A column's type in Spark, and what it is called below; None: the folder's name tells it."""

    ddl: str
    scan_name: str | None


_HEADERS_DDL: Final = "array<struct<key:string,value:binary>>"

#: By their names in Spark, in the order of its Kafka source.
COLUMNS: Final[dict[str, SourceColumn]] = {
    "key": SourceColumn("binary", "key"),
    "value": SourceColumn("binary", "value"),
    "topic": SourceColumn("string", None),
    "partition": SourceColumn("int", None),
    "offset": SourceColumn("bigint", "offset"),
    "timestamp": SourceColumn("timestamp", "timestamp"),
    "timestampType": SourceColumn("int", "timestamp_type"),
    "headers": SourceColumn(_HEADERS_DDL, "headers"),
    # Of the record's batch.
    "timestampMs": SourceColumn("bigint", "timestamp_ms"),
    "position": SourceColumn("bigint", "position"),
    "baseOffset": SourceColumn("bigint", "base_offset"),
    "producerId": SourceColumn("bigint", "producer_id"),
    "producerEpoch": SourceColumn("smallint", "producer_epoch"),
    "sequence": SourceColumn("int", "sequence"),
    "leaderEpoch": SourceColumn("int", "leader_epoch"),
    "codec": SourceColumn("string", "codec"),
    "isControl": SourceColumn("boolean", "is_control"),
    "isTransactional": SourceColumn("boolean", "is_transactional"),
}
DEFAULT_NAMES: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
)  # fmt: skip
_BY_LOWER: Final = {name.lower(): name for name in COLUMNS}


def column_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a read with these options gives: asked for before it is known whether it will be a
    batch or a stream, and the same for both."""
    given = Given(options)
    named = given.words("columns")
    if named is not None:
        return names_of(named)
    return (*DEFAULT_NAMES, "headers") if given.flag("includeHeaders", False) else DEFAULT_NAMES


def names_of(names: Iterable[str]) -> tuple[str, ...]:
    """The names as we spell them; UsageError where there is no such column, one is there twice, or none is
    named."""
    found = []
    for name in names:
        known = _BY_LOWER.get(name.lower())
        if known is None:
            raise UsageError(f"no column {name!r}: there are {', '.join(COLUMNS)}")
        if known in found:
            raise UsageError(f"the column {known} is named twice")
        found.append(known)
    if not found:
        raise UsageError(f"no column is named: there are {', '.join(COLUMNS)}")
    return tuple(found)


def ddl_of(names: Sequence[str]) -> str:
    """What ``timestamp`` alone means is up to the session; ours are instants."""
    kinds = ((name, COLUMNS[name].ddl) for name in names)
    return ", ".join(f"`{name}` {'timestamp_ltz' if k == 'timestamp' else k}" for name, k in kinds)


def spark_schema(names: Sequence[str]) -> StructType:
    """The schema of these columns."""
    # Made here and not parsed: only a session can parse, and the process that asks has none.
    from pyspark.sql import types as t

    header = t.StructType(
        [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
    )
    kinds: dict[str, t.DataType] = {
        "binary": t.BinaryType(),
        "string": t.StringType(),
        "smallint": t.ShortType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "boolean": t.BooleanType(),
        "timestamp": t.TimestampType(),
        _HEADERS_DDL: t.ArrayType(header),
    }
    return t.StructType([t.StructField(name, kinds[COLUMNS[name].ddl]) for name in names])


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema that a user gave with ``.schema(...)``: a subset of ours, in any order,
    with our types. UsageError where it asks for something else."""
    names = names_of(schema.names)
    wanted = spark_schema(names)
    for field, ours in zip(schema.fields, wanted.fields, strict=True):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise UsageError(
                f"the column {ours.name} is of type {ours.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it so, and cast it afterwards"
            )
        if field.name != ours.name:
            raise UsageError(f"the column {field.name} is spelled {ours.name}")
        if ours.nullable and not field.nullable:
            raise UsageError(f"the column {ours.name} may hold nulls: leave out NOT NULL")
    return names
