"""What a condition in SQL says of topic, partition, offset and timestamp, where nobody else can be asked.

Spark Connect parses a text only where it runs it. So this knows a small part of the language, in which
nothing can be meant otherwise: comparisons of columns with plain literals, IN, BETWEEN, AND, OR, parentheses.
A text that holds anything else, even a word, says nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from stratalog.spark.pushdown.pruning import EVERYTHING, MIRRORED, Pruning, bounded

__all__ = ["Condition", "TimeOf", "read_condition"]

#: The microseconds that a text is as a timestamp; None where it is none.
TimeOf = Callable[[str], int | None]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[+-]?\d+)(?![\w.])|'(?P<text>[^'\\]*)'(?!')|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),])"
    r"|`(?P<quoted>\w+)`|(?P<word>[A-Za-z_]\w*))",
    re.ASCII,
)
_KEYWORDS: Final = frozenset({"and", "or", "in", "between", "timestamp"})
_INT64: Final = range(-(2**63), 2**63)
_DEPTH_MAX: Final = 100


class Condition(NamedTuple):
    """What passes, and which columns it looks at."""

    pruning: Pruning
    columns: frozenset[str]


class _UnknownError(Exception):
    """A text that is not understood to its end."""


class _Token(NamedTuple):
    kind: str  # number, text, sign, name (a column), keyword, end
    value: str


def read_condition(text: str, time_of: TimeOf) -> Condition | None:
    """The condition; None where the text is not wholly of the language that is known here."""
    try:
        return _Parser(_tokens(text), time_of).parse()
    except _UnknownError:
        return None


def _tokens(text: str) -> list[_Token]:
    if "$" in text:  # Spark may put something else in its place
        raise _UnknownError
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _UnknownError
        at = found.end()
        kind = str(found.lastgroup)
        value = found[kind]
        if kind == "word":
            kind = "keyword" if value.lower() in _KEYWORDS else "name"
        elif kind == "quoted":
            kind = "name"
        tokens.append(_Token(kind, value))
    return [*tokens, _Token("end", "")]


class _Parser:
    """or := and {OR and}; and := unit {AND unit}; unit := "(" or ")" | comparison"""

    def __init__(self, tokens: list[_Token], time_of: TimeOf) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._time_of = time_of
        self._columns: set[str] = set()

    def parse(self) -> Condition:
        pruning = self._either()
        if self._next.kind != "end":
            self._fail()
        return Condition(pruning, frozenset(self._columns))

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _fail(self) -> NoReturn:
        raise _UnknownError

    def _take(self, kind: str, *values: str) -> str | None:
        token = self._next
        if token.kind != kind or (values and token.value.lower() not in values):
            return None
        self._at += 1
        return token.value

    def _must(self, kind: str, *values: str) -> str:
        value = self._take(kind, *values)
        return self._fail() if value is None else value

    def _either(self) -> Pruning:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail()
        found = self._both()
        while self._take("keyword", "or"):
            found = found.either(self._both())
        self._depth -= 1
        return found

    def _both(self) -> Pruning:
        found = self._unit()
        while self._take("keyword", "and"):
            found = found.both(self._unit())
        return found

    def _unit(self) -> Pruning:
        if self._take("sign", "("):
            found = self._either()
            self._must("sign", ")")
            return found
        return self._comparison()

    def _comparison(self) -> Pruning:
        column = self._column()
        if column is None:
            value = self._literal(None)
            sign = self._must("sign")
            column = self._column()
            if column is None:
                self._fail()
            # A time is only known to be one by what it is compared with.
            return _compared(column, MIRRORED.get(_same(sign), sign), self._as(column, value))
        if self._take("keyword", "in"):
            self._must("sign", "(")
            found = self._equal(column)
            while self._take("sign", ","):
                found = found.either(self._equal(column))
            self._must("sign", ")")
            # Without ANSI, Spark compares these as texts, and the hour that comes twice has one text.
            return EVERYTHING if column == "timestamp" else found
        if self._take("keyword", "between"):
            low = self._as(column, self._literal(column))
            self._must("keyword", "and")
            high = self._as(column, self._literal(column))
            return _compared(column, ">=", low).both(_compared(column, "<=", high))
        sign = _same(self._must("sign"))
        return _compared(column, sign, self._as(column, self._literal(column)))

    def _equal(self, column: str) -> Pruning:
        return _compared(column, "=", self._as(column, self._literal(column)))

    def _column(self) -> str | None:
        # "timestamp" is a column, and, before a text, the word for a literal.
        behind = self._tokens[self._at + 1] if self._next.kind == "keyword" else None
        is_time = (
            behind is not None and behind.kind != "text" and self._next.value.lower() == "timestamp"
        )
        name = self._take("keyword", "timestamp") if is_time else self._take("name")
        if name is None:
            return None
        self._columns.add(name.lower())
        return name.lower()

    def _literal(self, column: str | None) -> int | str:
        if self._take("keyword", "timestamp"):
            text = self._must("text")
            if column not in (None, "timestamp"):
                self._fail()
            return text
        number = self._take("number")
        if number is not None:
            return int(number) if int(number) in _INT64 else self._fail()
        return self._must("text")

    def _as(self, column: str, value: int | str) -> int | str | None:
        """The value as the column has it; None where only Spark knows."""
        if column == "timestamp":
            return self._time_of(value) if isinstance(value, str) else None
        if column == "topic":
            return value if isinstance(value, str) else None
        return value if isinstance(value, int) else None


def _same(sign: str) -> str:
    return "=" if sign == "==" else sign


def _compared(column: str, sign: str, value: int | str | None) -> Pruning:
    if sign in ("(", ")", ","):
        raise _UnknownError
    if value is None or sign not in MIRRORED:
        return EVERYTHING
    return bounded(column, sign, value)
