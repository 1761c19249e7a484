"""What an export writes of a record: its columns, and key and value as bytes, as text or as JSON.

Nothing is lost on the way: bytes that are no text, or text that is no JSON, stand in ``value_raw`` as they
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["DECODINGS", "SOURCE_COLUMNS", "decoded"]

DECODINGS: Final = ("binary", "text", "json")
SOURCE_COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
)  # fmt: skip
_DAY_MS: Final = 86_400_000


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
    parsed = f.try_parse_json(value)
    shown = parsed if schema is None else f.from_json(value, schema)
    return [key.alias("key"), key_raw, shown.alias("value"), _where_lost("value", parsed)]


def _text(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.try_validate_utf8(f.col(name).cast("string"))


def _where_lost(name: str, made: Column) -> Column:
    """The bytes where nothing could be made of them."""
    from pyspark.sql import functions as f

    return f.when(f.col(name).isNotNull() & made.isNull(), f.col(name)).alias(f"{name}_raw")
