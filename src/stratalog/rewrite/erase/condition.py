"""Conditions on key, value and headers of records: a small part of SQL, read here and evaluated by Arrow.

::

    key = 'customer-7'
    value like '%"email":"ada@%' and not key in ('a', 'b')
    header.user = 'ada' or header['trace id'] is null
    key = x'00ff'

A text in quotes is compared as UTF-8; two quotes in a row are one quote. ``x'…'`` are bytes. In ``like``,
``%`` stands for any bytes, ``_`` for one character, and a backslash takes away their meaning. A comparison
with a null key, value or header is neither true nor false, and the record stays. A comparison with a header
is true if one of the record's headers of that name has such a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from stratalog.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Condition", "parse_condition"]

_TOKEN: Final = re.compile(
    r"\s*(?:[xX]'(?P<hex>[0-9a-fA-F]*)'|'(?P<text>(?:[^']|'')*)'|(?P<sign><>|!=|==?|[(),.\[\]])"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_-]*))"
)
_FIELDS: Final = ("key", "value", "header")
_DEPTH_MAX: Final = 100
_LENGTH_MAX: Final = 64 << 10


class _Column(NamedTuple):
    """What a comparison looks at: ``key``, ``value``, or a header by its name."""

    field: str
    header: str | None = None

    def __str__(self) -> str:
        return self.field if self.header is None else f"header.{self.header}"


#: Computes a mask, with nulls, for the rows of a record batch.
Mask = Callable[["pa.RecordBatch"], Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was read. ``columns`` are those that it looks at."""

    text: str
    columns: frozenset[_Column]
    _mask: Mask

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that must be decoded."""
        names = {"headers" if each.field == "header" else each.field for each in self.columns}
        return tuple(sorted(names))

    def matching(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the offsets of the rows for which the condition is true. The batch has the columns
        ``offset`` and ``fields``."""
        import pyarrow.compute as pc

        return batch.column("offset").filter(pc.fill_null(self._mask(batch), False))


def parse_condition(text: str) -> Condition:
    """Read a condition. UsageError says where it is not one."""
    if len(text) > _LENGTH_MAX:
        raise UsageError(f"a condition has at most {_LENGTH_MAX} characters, not {len(text)}")
    return _Parser(text).parse()


class _Token(NamedTuple):
    kind: str  # hex, text, sign, word, end
    value: str
    at: int


def _tokens(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _error(text, at, "nothing that belongs into a condition")
        kind = str(found.lastgroup)
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        at = found.end()
    return [*tokens, _Token("end", "", end)]


def _error(text: str, at: int, found: str) -> UsageError:
    return UsageError(
        f"the condition {text!r} has {found} at character {at + 1}: write it as in key = 'a' and "
        "header.user like 'b%'"
    )


class _Parser:
    """or := and {OR and}; and := unit {AND unit}; unit := NOT unit | "(" or ")" | comparison"""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._columns: set[_Column] = set()

    def parse(self) -> Condition:
        mask = self._either()
        if self._next.kind != "end":
            self._fail()
        return Condition(self._text, frozenset(self._columns), mask)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _fail(self) -> NoReturn:
        token = self._next
        found = "its end" if token.kind == "end" else f"{token.value!r}"
        raise _error(self._text, token.at, f"{found}, which cannot stand")

    def _take(self, kind: str, *values: str) -> str | None:
        token = self._next
        if token.kind != kind or (values and token.value.lower() not in values):
            return None
        self._at += 1
        return token.value

    def _must(self, kind: str, *values: str) -> str:
        taken = self._take(kind, *values)
        if taken is None:
            self._fail()
        return taken

    def _either(self) -> Mask:
        masks = [self._both()]
        while self._take("word", "or"):
            masks.append(self._both())
        return _joined("or_kleene", masks)

    def _both(self) -> Mask:
        masks = [self._unit()]
        while self._take("word", "and"):
            masks.append(self._unit())
        return _joined("and_kleene", masks)

    def _unit(self) -> Mask:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise UsageError(f"a condition has at most {_DEPTH_MAX} levels of parentheses")
        try:
            if self._take("word", "not"):
                return _inverted(self._unit())
            if self._take("sign", "("):
                mask = self._either()
                self._must("sign", ")")
                return mask
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Mask:
        column = self._column()
        self._columns.add(column)
        if self._take("word", "is"):
            is_negated = self._take("word", "not") is not None
            self._must("word", "null")
            mask = _is_null(column)
            return _inverted(mask) if is_negated else mask
        if self._take("sign", "=", "=="):
            return _compared(column, "equal", self._literal())
        if self._take("sign", "!=", "<>"):
            return _compared(column, "not_equal", self._literal())
        is_negated = self._take("word", "not") is not None
        if self._take("word", "like"):
            mask = _like(column, self._literal())
        else:
            self._must("word", "in")
            mask = self._one_of(column)
        return _inverted(mask) if is_negated else mask

    def _one_of(self, column: _Column) -> Mask:
        self._must("sign", "(")
        literals = [self._literal()]
        while self._take("sign", ","):
            literals.append(self._literal())
        self._must("sign", ")")
        return _one_of(column, literals)

    def _column(self) -> _Column:
        field = self._must("word", *_FIELDS).lower()
        if field != "header":
            return _Column(field)
        if self._take("sign", "["):
            name = self._header_name()
            self._must("sign", "]")
        else:
            self._must("sign", ".")
            name = self._must("word")
        return _Column(field, name)

    def _header_name(self) -> str:
        name = self._must("text").replace("''", "'")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the header name {name!r} is not UTF-8") from None
        return name

    def _literal(self) -> bytes:
        digits = self._take("hex")
        if digits is not None:
            if len(digits) % 2:
                self._at -= 1
                self._fail()
            return bytes.fromhex(digits)
        text = self._must("text").replace("''", "'")
        try:
            return text.encode(
                "utf-8", "surrogateescape"
            )  # bytes of a command line that are not UTF-8
        except UnicodeEncodeError:
            raise UsageError(
                f"the text {text!r} has no UTF-8: write its bytes as x'00ff'"
            ) from None


def _joined(name: str, masks: Sequence[Mask]) -> Mask:
    """Combine masks, one after the other: a long condition must not need a deep stack."""
    if len(masks) == 1:
        return masks[0]

    def mask(batch: pa.RecordBatch) -> Any:
        import pyarrow.compute as pc

        return reduce(
            lambda left, right: pc.call_function(name, [left, right(batch)]),
            masks[1:],
            masks[0](batch),
        )

    return mask


def _inverted(inner: Mask) -> Mask:
    def mask(batch: pa.RecordBatch) -> Any:
        import pyarrow.compute as pc

        return pc.invert(inner(batch))

    return mask


def _compared(column: _Column, name: str, literal: bytes) -> Mask:
    def compare(values: pa.Array) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.call_function(name, [values, pa.scalar(literal, pa.binary())])

    return _over(column, compare)


def _one_of(column: _Column, literals: Sequence[bytes]) -> Mask:
    def compare(values: pa.Array) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.is_in(values, value_set=pa.array(literals, pa.binary()))
        return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))

    return _over(column, compare)


def _like(column: _Column, pattern: bytes) -> Mask:
    expression = _regex_of(pattern)

    def compare(values: pa.Array) -> Any:
        import pyarrow.compute as pc

        return pc.match_substring_regex(values, expression)

    return _over(column, compare)


def _regex_of(pattern: bytes) -> str:
    r"""Return a LIKE pattern as a regular expression over bytes: text that is not UTF-8 is matched, too."""
    parts, taken = [r"(?s)\A"], iter(pattern)
    for byte in taken:
        if byte == ord("\\"):
            byte = next(taken, byte)
        elif byte == ord("%"):
            parts.append(r"\C*")
            continue
        elif byte == ord("_"):
            parts.append(_CHARACTER)
            continue
        char = chr(byte)
        parts.append(re.escape(char) if byte < 0x80 else rf"\x{byte:02x}")
    return "".join([*parts, r"\z"])


#: One character of UTF-8.
_CHARACTER: Final = (
    r"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
)


def _is_null(column: _Column) -> Mask:
    def mask(batch: pa.RecordBatch) -> Any:
        import pyarrow.compute as pc

        if column.header is None:
            return pc.is_null(batch.column(column.field))
        return pc.invert(pc.fill_null(_any_header(batch, column.header, pc.is_valid), False))

    return mask


def _over(column: _Column, compare: Callable[[Any], Any]) -> Mask:
    """Return the mask of a comparison: of a column, or of any of the headers of a name."""

    def mask(batch: pa.RecordBatch) -> Any:
        if column.header is None:
            return compare(batch.column(column.field))
        return _any_header(batch, column.header, compare)

    return mask


def _any_header(batch: pa.RecordBatch, name: str, compare: Callable[[Any], Any]) -> Any:
    """Compare the values of all headers of a name, and combine the results of each record by OR: true if one
    is, else null if one is or if there is no such header, else false."""
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = batch.column("headers")
    parents = pc.list_parent_indices(headers)
    keys, values = headers.flatten().flatten()
    is_named = pc.equal(keys, name)
    rows = parents.filter(is_named)
    results = compare(values.filter(is_named))
    all_rows = pa.array(range(batch.num_rows), rows.type)

    def has(some: Any) -> Any:
        return pc.is_in(all_rows, value_set=rows.filter(some))

    is_true = has(pc.fill_null(results, False))
    is_false = pc.and_not(pc.is_in(all_rows, value_set=rows), has(pc.is_null(results)))
    return pc.if_else(pc.or_(is_true, is_false), is_true, pa.scalar(None, pa.bool_()))
