"""What a condition of Spark's says, asked of Spark itself: it has parsed it, typed it, folded its constants.

Only a session of this process can be asked; for Spark Connect there is ``connect_condition``. Without an
answer nothing is pruned, and the condition is applied all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.pushdown.pruning import (
    EVERYTHING,
    MIRRORED,
    NOTHING,
    Interval,
    Pruning,
    bounded,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["pruning_of", "references_of"]

_COMPARISONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_NUMBERS: Final = ("partition", "offset", "timestamp")
_DEPTH_MAX: Final = 200
#: What Spark takes for a constant when it optimizes, anew for each use.
_CLOCKS: Final = ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime")
_TIMES: Final = ("timestamp", "timestamp_ntz", "date")
#: Through which a later time stays a later one; those that bound only, and those that join.
_RISING: Final = (
    *_COMPARISONS, "And", "Or", "Cast", "DatetimeSub", "TimestampAddInterval", "TimeAdd", "TruncTimestamp",
    "TruncDate", "DateSub", "DateAdd", "DateAddInterval", "TimestampAddYMInterval",
)  # fmt: skip


def pruning_of(filtered: DataFrame) -> Pruning:
    """What the condition lets through of a DataFrame that is filtered by it, and by nothing else, now and
    whenever it is used."""
    analyzed = _analyzed(filtered)
    if analyzed is None:
        return EVERYTHING
    clock = _clock_of(analyzed.condition()) if _name(analyzed) == "Filter" else _Clock.NONE
    if clock is _Clock.UNKNOWN:
        return EVERYTHING
    pruning = _pruning_now(filtered)
    if clock is _Clock.RISES:
        # Whoever asks later asks for later times. What is too early now is so then, too.
        if pruning.is_nothing:
            return EVERYTHING
        return replace(pruning, times_us=Interval(pruning.times_us.low, None))
    return pruning


def _pruning_now(filtered: DataFrame) -> Pruning:
    plan = _optimized(filtered)
    if plan is None:
        return EVERYTHING
    pruning = EVERYTHING
    while True:
        name = _name(plan)
        if name == "LocalRelation" or name == "EmptyRelation":
            return NOTHING  # Spark itself has seen that nothing can pass
        if name == "Filter":
            pruning = pruning.both(_of(plan.condition(), 0))
        children = list(_items(plan.children()))
        if len(children) != 1 or name not in ("Filter", "Project"):
            return pruning
        plan = children[0]


class _Clock(Enum):
    """What a condition has to do with the time at which it is evaluated."""

    NONE = 0
    RISES = 1  # a bound that rises with it, such as now() - interval 1 hour
    UNKNOWN = 2


def _clock_of(node: Any, depth: int = 0) -> _Clock:
    name = _name(node)
    if name in _CLOCKS:
        return _Clock.RISES
    if depth > _DEPTH_MAX:
        return _Clock.UNKNOWN
    below = max(
        (_clock_of(each, depth + 1) for each in _items(node.children())),
        key=lambda each: each.value,
        default=_Clock.NONE,
    )
    if below is not _Clock.RISES:
        return below
    is_time = name != "Cast" or node.dataType().simpleString() in _TIMES
    return _Clock.RISES if name in _RISING and is_time else _Clock.UNKNOWN


def references_of(filtered: DataFrame) -> frozenset[str] | None:
    """The columns that the condition reads, in small letters; None where it cannot be asked."""
    plan = _analyzed(filtered)
    if plan is None:
        return None
    names: set[str] = set()
    while _name(plan) == "Filter":
        names |= {
            str(each.name()).lower() for each in _items(plan.condition().references().toSeq())
        }
        plan = plan.child()
    return frozenset(names)


def _execution(data: DataFrame) -> Any:
    java = getattr(data, "_jdf", None)
    return None if java is None else java.queryExecution()


def _optimized(data: DataFrame) -> Any:
    execution = _execution(data)
    return None if execution is None else execution.optimizedPlan()


def _analyzed(data: DataFrame) -> Any:
    execution = _execution(data)
    return None if execution is None else execution.analyzed()


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)


def _of(condition: Any, depth: int) -> Pruning:
    if depth > _DEPTH_MAX:
        return EVERYTHING
    name = _name(condition)
    if name in ("And", "Or"):
        left, right = _of(condition.left(), depth + 1), _of(condition.right(), depth + 1)
        return left.both(right) if name == "And" else left.either(right)
    if name in _COMPARISONS:
        return _of_comparison(_COMPARISONS[name], condition.left(), condition.right())
    if name == "In":
        return _of_values(condition.value(), list(_items(condition.list())))
    if name == "InSet":
        values = condition.hset().toSeq()
        column = _column(condition.child())
        if column is None:
            return EVERYTHING
        return _union(column, [_plain(each) for each in _items(values)])
    if name == "Literal" and condition.value() is False:
        return NOTHING
    return EVERYTHING


def _of_values(value: Any, options: list[Any]) -> Pruning:
    column = _column(value)
    if column is None or any(_name(each) != "Literal" for each in options):
        return EVERYTHING
    return _union(column, [_plain(each.value()) for each in options])


def _union(column: str, values: list[Any]) -> Pruning:
    pruning = NOTHING
    for value in values:
        if value is not None:  # what is null is equal to nothing
            pruning = pruning.either(bounded(column, "=", value))
    return pruning


def _of_comparison(comparison: str, left: Any, right: Any) -> Pruning:
    column = _column(left)
    if column is None:
        column, right, comparison = _column(right), left, MIRRORED[comparison]
    if column is None or _name(right) != "Literal":
        return EVERYTHING
    value = _plain(right.value())
    if value is None:
        return NOTHING if comparison != "<=>" else EVERYTHING
    return bounded(column, comparison, value)


def _column(node: Any) -> str | None:
    """The column that an expression is; a number that was only made wider is still the same."""
    if _name(node) == "Cast" and node.dataType().simpleString() == "bigint":
        inner = node.child()
        if _name(inner) == "AttributeReference" and inner.dataType().simpleString() == "int":
            node = inner
    if _name(node) != "AttributeReference":
        return None
    name = str(node.name()).lower()  # as the condition spells it
    if name in _NUMBERS or name == "topic":
        return name
    return None


def _plain(value: Any) -> Any:
    """A literal's value as Python has it: numbers and texts; Spark's times are microseconds."""
    if value is None or isinstance(value, int | str | bool):
        return value
    return str(value.toString()) if hasattr(value, "toString") else None
