"""What an export writes of a record: its columns, and key and value as bytes, as text or as JSON.

Nothing is lost on the way: bytes that are no text, text that is no JSON, or JSON that a schema does not fit,
stand in ``value_raw`` as they are. What a schema does not name is left out, because it was not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["COUNTED", "DECODINGS", "SOURCE_COLUMNS", "decoded"]

#: The observation that counts the records which are written.
COUNTED: Final = "stratalog export"
DECODINGS: Final = ("binary", "text", "json")
SOURCE_COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
)  # fmt: skip
_DAY_MS: Final = 86_400_000
#: Where Spark puts a text that does not fit its schema.
_MISFIT: Final = "misfit"


def decoded(rows: DataFrame, decode: str, schema: str | None) -> DataFrame:
    """The rows of a read as an export writes them, with a column ``date``: the day of the record, in UTC."""
    from pyspark.sql import functions as f

    if decode not in DECODINGS:
        raise UsageError(f"decode={decode!r}: one of {', '.join(DECODINGS)}")
    if schema is not None and decode != "json":
        raise UsageError("a schema is for decode='json': other values have none")
    # Of the zone of the session a day must not depend.
    day = f.floor(f.unix_millis(f.col("timestamp")) / f.lit(_DAY_MS)).cast("int")
    columns = [f.col(name) for name in SOURCE_COLUMNS[:5]]
    columns += _key_and_value(decode, schema)
    columns += [f.col("headers"), f.expr("date_from_unix_date(day)").alias("date")]
    return rows.withColumn("day", day).select(*columns)


def _key_and_value(decode: str, schema: str | None) -> list[Column]:
    from pyspark.sql import functions as f

    if decode == "binary":
        return [f.col("key"), f.col("value")]
    key, value = _text("key"), _text("value")
    key_raw, text_raw = _where_lost("key", key), _where_lost("value", value)
    if decode == "text":
        return [key.alias("key"), key_raw, value.alias("value"), text_raw]
    shown, is_whole = _variant(value) if schema is None else _fitted(value, schema)
    value_raw = f.when(f.col("value").isNotNull() & ~is_whole, f.col("value")).alias("value_raw")
    return [key.alias("key"), key_raw, shown.alias("value"), value_raw]


def _variant(text: Column) -> tuple[Column, Column]:
    """The text as a variant, and whether that is all of it."""
    from pyspark.sql import functions as f

    made = f.when(_is_one_document(text), f.try_parse_json(text))
    return made, made.isNotNull()


def _fitted(text: Column, schema: str) -> tuple[Column, Column]:
    """The text by a schema, and whether that is all that it has under the names of the schema."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import DataType, StringType, StructField, StructType

    # Within an object a schema may be of any type, and an array is not taken for its first element.
    around = StructType(
        [StructField("made", DataType.fromDDL(schema)), StructField(_MISFIT, StringType())]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
    read = f.from_json(f.concat(f.lit('{"made":'), text, f.lit("}")), around, options)
    made = f.when(_is_one_document(text), read["made"])
    # A name that is there twice has lost one value: a variant refuses that, a schema does not.
    is_unambiguous = f.try_parse_json(text).isNotNull()
    return made, made.isNotNull() & read[_MISFIT].isNull() & is_unambiguous


def _is_one_document(text: Column) -> Column:
    """Whether nothing stands behind the first JSON value of a text: Spark's parsers leave it unread.

    As an element of an array a value can only be followed by a comma and a second one, as a member of an
    object only by a comma and a name: so by nothing, if the text can be both.
    """
    from pyspark.sql import functions as f

    element = f.json_array_length(f.concat(f.lit("["), text, f.lit("]")))
    member = f.json_object_keys(f.concat(f.lit('{"made":'), text, f.lit("}")))
    return element.isNotNull() & member.isNotNull()


def _text(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.try_validate_utf8(f.col(name).cast("string"))


def _where_lost(name: str, made: Column) -> Column:
    """The bytes where nothing could be made of them."""
    from pyspark.sql import functions as f

    return f.when(f.col(name).isNotNull() & made.isNull(), f.col(name)).alias(f"{name}_raw")
