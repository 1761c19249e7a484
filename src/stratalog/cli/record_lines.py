"""Records from lines of text: plain values, or what ``cat -o ndjson`` prints."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from stratalog.errors import UsageError

__all__ = ["INPUTS", "RecordFields", "read_records"]

#: A record as ``Logs.append`` takes it.
RecordFields = dict[str, Any]

_LINE_BYTES_MAX: Final = 256 << 20


def read_records(lines: Iterable[bytes], kind: str) -> Iterator[RecordFields]:
    """One record a line. UsageError names the line that is none."""
    parse = INPUTS[kind]
    for number, line in enumerate(lines, 1):
        if len(line) > _LINE_BYTES_MAX:
            raise UsageError(f"line {number}: {len(line)} bytes are too many for a record")
        line = line.removesuffix(b"\n")
        try:
            record = parse(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"line {number}: {error}") from None
        if record is not None:
            yield record


def _plain(line: bytes) -> RecordFields:
    return {"value": line.removesuffix(b"\r")}


def _ndjson(line: bytes) -> RecordFields | None:
    if not line.strip():
        return None
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error.msg}") from None
    if not isinstance(fields, dict) or not {"key", "value"} & fields.keys():
        raise UsageError("a record is an object with a 'value', and perhaps a 'key'")
    record: RecordFields = {
        "key": _decoded(fields, "key"),
        "value": _decoded(fields, "value"),
        "headers": _headers(fields.get("headers")),
    }
    if "timestamp" in fields:
        record["timestamp"] = _integer(fields["timestamp"], "timestamp")
    if fields.get("partition") is not None:
        record["partition"] = _integer(fields["partition"], "partition")
    return record


def _decoded(fields: dict[str, Any], name: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{name!r} is text in base64, or null")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise UsageError(
            f"{name!r} is not base64, as 'stratalog cat -o ndjson' prints it"
        ) from None


def _headers(headers: Any) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise UsageError("'headers' are a list of pairs")
    pairs = []
    for pair in headers:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError("a header is a pair of text and base64 (or null)")
        pairs.append((pair[0], _decoded({"header": pair[1]}, "header")))
    return pairs


def _integer(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise UsageError(f"{name!r} is a whole number, not {value!r}")


INPUTS: Final[dict[str, Callable[[bytes], RecordFields | None]]] = {
    "lines": _plain,
    "ndjson": _ndjson,
}
