"""Records from lines of text: plain values, or what ``cat -o ndjson`` prints."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from stratalog.cli.record_columns import RECORD_COLUMNS
from stratalog.errors import StorageError, UsageError
from stratalog.inspect.scan import FILE_COLUMNS
from stratalog.records.columns import COLUMN_NAMES
from stratalog.records.layout import INT32_MAX, INT64_MAX, INT64_MIN

__all__ = ["INPUTS", "RecordFields", "RecordLine", "Stream", "read_records"]

#: A record as ``Logs.append`` takes it.
RecordFields = dict[str, Any]

_LINE_BYTES_MAX: Final = 256 << 20
_READ_BYTES: Final = 1 << 20
_RECORDS_AT_ONCE: Final = 8192
#: What ``cat`` prints of a record. What says where it was stored before is not used.
_FIELDS: Final = frozenset({*FILE_COLUMNS, *COLUMN_NAMES})


class RecordLine(NamedTuple):
    """A record, and the line that it stood in."""

    number: int
    fields: RecordFields


class Stream(Protocol):
    """Bytes as they come; standard input."""

    def read1(self, size: int, /) -> bytes: ...


def read_records(stream: Stream, kind: str) -> Iterator[list[RecordLine]]:
    """Records as they come, some at a time: nobody waits for lines that were not written yet. UsageError
    names the first line that is none, after the records before it."""
    parse = INPUTS[kind]
    number = 0
    for lines in _lines(stream):
        some: list[RecordLine] = []
        for line in lines:
            number += 1
            try:
                fields = parse(line)
            except ValueError as error:
                if some:
                    yield some
                raise UsageError(f"line {number}: {error}") from None
            if fields is not None:
                some.append(RecordLine(number, fields))
            if len(some) == _RECORDS_AT_ONCE:
                yield some
                some = []
        if some:
            yield some


def _lines(stream: Stream) -> Iterator[Iterable[bytes]]:
    """Whole lines without their ends, as many as one read brought."""
    begun: list[bytes] = []  # the parts of a line whose end has not come
    size = 0
    number = 1  # of that line
    while chunk := _read(stream):
        head, *lines = chunk.split(b"\n")
        begun.append(head)
        size += len(head)
        if size > _LINE_BYTES_MAX:
            raise UsageError(
                f"line {number}: more than {_LINE_BYTES_MAX} bytes: the line is too long"
            )
        if lines:
            rest = lines.pop()
            yield [b"".join(begun), *lines]
            number += 1 + len(lines)
            begun, size = [rest], len(rest)
    if size:
        yield [b"".join(begun)]


def _read(stream: Stream) -> bytes:
    try:
        return stream.read1(_READ_BYTES)
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
        raise StorageError(detail, path="standard input", errno=error.errno) from None


def _plain(line: bytes) -> RecordFields:
    return {"value": line.removesuffix(b"\r")}


def _ndjson(line: bytes) -> RecordFields | None:
    if not line.strip():
        return None
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error.msg}") from None
    except RecursionError:
        raise UsageError("not a record: the JSON is nested too deeply") from None
    if not isinstance(fields, dict) or "value" not in fields:
        raise UsageError(
            "a record is a JSON object with a 'value' (null for a tombstone) and optionally a 'key'"
        )
    for name in fields:
        if name not in _FIELDS:
            raise UsageError(f"a record has no {name!r}: it has {', '.join(RECORD_COLUMNS)}")
    if fields.get("is_control"):
        raise UsageError("a control record ends a transaction: it cannot be appended as a record")
    record: RecordFields = {
        "key": _decoded(fields, "key"),
        "value": _decoded(fields, "value"),
        "headers": _headers(fields.get("headers")),
    }
    for name, smallest, largest in (
        ("timestamp", INT64_MIN, INT64_MAX),
        ("partition", 0, INT32_MAX),
    ):
        if fields.get(name) is not None:
            record[name] = _integer(fields[name], name, smallest, largest)
    return record


def _decoded(fields: dict[str, Any], name: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{name!r} must be base64 text or null")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:  # binascii.Error, or letters that are not ASCII
        detail = f": {error}" if isinstance(error, binascii.Error) else ""
        raise UsageError(
            f"{name!r} is not base64, as 'stratalog cat -o ndjson' prints it{detail}"
        ) from None


def _headers(headers: Any) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise UsageError("'headers' must be a list of pairs")
    pairs = []
    for pair in headers:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError("a header must be a pair of text and base64 text or null")
        pair[0].encode()  # JSON can name what is no character
        pairs.append((pair[0], _decoded({"header": pair[1]}, "header")))
    return pairs


def _integer(value: Any, name: str, smallest: int, largest: int) -> int:
    if type(value) is not int or not smallest <= value <= largest:
        raise UsageError(f"{name!r} is a whole number from {smallest} to {largest}, not {value!r}")
    return value


INPUTS: Final[dict[str, Callable[[bytes], RecordFields | None]]] = {
    "lines": _plain,
    "ndjson": _ndjson,
}
