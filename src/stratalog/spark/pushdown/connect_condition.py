"""What a condition says, where Spark runs elsewhere: as it goes over the wire, before anybody resolves it.

A Column is a tree of calls by name there, and says as much as a text does by ``condition_text``: comparisons
of columns with literals, AND, OR. Anything else in it says nothing. What a text is as a time, the server is
asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.pushdown.condition_text import Condition, read_condition
from stratalog.spark.pushdown.pruning import EVERYTHING, MIRRORED, Pruning, bounded

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["condition_of"]

_COMPARISONS: Final = {**{sign: sign for sign in MIRRORED}, "==": "="}
#: Fields of a literal on the wire. A timestamp is in microseconds.
_NUMBERS: Final = ("byte", "short", "integer", "long")
_DEPTH_MAX: Final = 100
#: With it, times are compared as texts.
_AS_TEXT: Final = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"


def condition_of(spark: SparkSession, where: str | Column) -> Condition | None:
    """The condition; None where it is not wholly understood, and says nothing."""
    if isinstance(where, str):
        return read_condition(where, lambda text: _time_of(spark, text))
    node = where.to_plan(spark.client)  # type: ignore[operator]
    if node.WhichOneof("expr_type") == "expression_string":
        return condition_of(spark, node.expression_string.expression)
    columns: set[str] = set()
    if not _collect(node, columns, 0):
        return None
    return Condition(_of(node), frozenset(columns))


def _time_of(spark: SparkSession, text: str) -> int | None:
    from pyspark.errors import PySparkException

    try:
        if str(spark.conf.get(_AS_TEXT, "false")).lower() != "false":
            return None
        row = spark.range(1).selectExpr(f"unix_micros(try_cast('{text}' AS TIMESTAMP))").first()
    except PySparkException:
        return None
    return None if row is None or row[0] is None else int(row[0])


def _collect(node: Any, columns: set[str], depth: int) -> bool:
    """Note the columns of a tree; whether it holds nothing but columns, literals and calls."""
    if depth > _DEPTH_MAX:
        return False
    kind = node.WhichOneof("expr_type")
    if kind == "unresolved_attribute":
        columns.add(_column(node))
        return True
    if kind == "unresolved_function":
        arguments = node.unresolved_function.arguments
        return all(_collect(each, columns, depth + 1) for each in arguments)
    return bool(kind == "literal")


def _column(node: Any) -> str:
    return str(node.unresolved_attribute.unparsed_identifier).strip("`").lower()


def _of(node: Any) -> Pruning:
    if node.WhichOneof("expr_type") != "unresolved_function":
        return EVERYTHING
    name, arguments = node.unresolved_function.function_name, node.unresolved_function.arguments
    if name in ("and", "or") and len(arguments) == 2:
        left, right = map(_of, arguments)
        return left.both(right) if name == "and" else left.either(right)
    if name == "in" and len(arguments) > 1:
        found = _compared("=", arguments[0], arguments[1])
        for each in arguments[2:]:
            found = found.either(_compared("=", arguments[0], each))
        return found
    if name in _COMPARISONS and len(arguments) == 2:
        return _compared(_COMPARISONS[name], *arguments)
    return EVERYTHING


def _compared(comparison: str, left: Any, right: Any) -> Pruning:
    if left.WhichOneof("expr_type") == "literal":
        left, right, comparison = right, left, MIRRORED[comparison]
    if (
        left.WhichOneof("expr_type") != "unresolved_attribute"
        or right.WhichOneof("expr_type") != "literal"
    ):
        return EVERYTHING
    column = _column(left)
    kind = right.literal.WhichOneof("literal_type")
    fits = {"topic": ("string",), "timestamp": ("timestamp",)}.get(column, _NUMBERS)
    return bounded(column, comparison, getattr(right.literal, kind)) if kind in fits else EVERYTHING
