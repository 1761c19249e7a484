"""The encoding of fields in metadata records: Kafka's flexible encoding, as its protocol has it.

Numbers are big-endian. Lengths and counts are unsigned variable-length integers, one higher than what they
count; zero is null. Every structure ends with tagged fields: optional values by number, in ascending order,
which readers that do not know them skip. Here they are kept, so that a structure can be written as it was.

A read function takes the bytes and a position, and returns the value and the position after it. Lengths are
checked against the bytes that are left before anything is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptionError, UsageError

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "OPTIONAL_TEXT",
    "TEXT",
    "UINT16",
    "UNKNOWN_TAGS",
    "UUID",
    "Field",
    "FieldType",
    "Structure",
    "array_of",
    "optional_array_of",
    "read_uvarint",
    "structure_of",
    "write_uvarint",
]

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]

#: The key under which a structure keeps the tagged fields that its table does not have.
UNKNOWN_TAGS: Final = "_tags"
_UVARINT_MAX: Final = 2**32 - 1
_UUID_SIZE: Final = 16


class FieldType(NamedTuple):
    """How values of one type are read and written."""

    read: Read
    write: Write


class Field(NamedTuple):
    """One field of a structure: present from version ``since`` on. A field with a ``tag`` is optional, and
    left out if it has its default; without a tag, ``default`` is what is written if no value is given."""

    name: str
    type: FieldType | Structure
    since: int = 0
    tag: int | None = None
    default: Any = None


class Structure(NamedTuple):
    """A structure that is a field's value, or the element of an array."""

    fields: tuple[Field, ...]


def _cut_off(at: int) -> CorruptionError:
    """Return the error for bytes that end in the middle of a value."""
    return CorruptionError(
        "metadata_record", f"a metadata record ends within a field, at byte {at}"
    )


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned variable-length integer of at most 32 bits."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise _cut_off(at)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _UVARINT_MAX:
                raise CorruptionError("metadata_record", f"a length or count of {value}")
            return value, at
        shift += 7
        if shift > 28:
            raise CorruptionError("metadata_record", "a variable-length integer above 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned variable-length integer."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _number(code: str) -> FieldType:
    packed = struct.Struct(">" + code)
    size, unpack, pack = packed.size, packed.unpack_from, packed.pack

    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(data):
            raise _cut_off(at)
        return unpack(data, at)[0], end

    def write(out: bytearray, value: Any) -> None:
        try:
            out += pack(value)
        except struct.error as error:
            raise UsageError(f"{value!r} is not a number of {size} bytes: {error}") from None

    return FieldType(read, write)


def _read_bool(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data):
        raise _cut_off(at)
    return data[at] != 0, at + 1


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length that is stored one higher; -1 is null."""
    length, at = read_uvarint(data, at)
    if length - 1 > len(data) - at:
        raise CorruptionError(
            "metadata_record",
            f"a length of {length - 1} at byte {at}, and {len(data) - at} bytes are left",
        )
    return length - 1, at


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_length(data, at)
    if length < 0:
        return None, at
    return data[at : at + length], at + length


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def _read_optional_text(data: bytes, at: int) -> tuple[str | None, int]:
    raw, end = _read_bytes(data, at)
    try:
        return None if raw is None else raw.decode("utf-8"), end
    except UnicodeDecodeError:
        raise CorruptionError(
            "metadata_record", f"a string at byte {at} that is not UTF-8"
        ) from None


def _write_optional_text(out: bytearray, value: str | None) -> None:
    _write_bytes(out, None if value is None else value.encode("utf-8"))


def _required(read: Read) -> Read:
    def read_required(data: bytes, at: int) -> tuple[Any, int]:
        value, end = read(data, at)
        if value is None:
            raise CorruptionError(
                "metadata_record", f"null at byte {at}, where a value is required"
            )
        return value, end

    return read_required


def _read_uuid(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + _UUID_SIZE
    if end > len(data):
        raise _cut_off(at)
    return data[at:end], end


def _write_uuid(out: bytearray, value: bytes) -> None:
    if len(value) != _UUID_SIZE:
        raise UsageError(f"an id of {len(value)} bytes: it has {_UUID_SIZE}")
    out += value


INT8: Final = _number("b")
INT16: Final = _number("h")
UINT16: Final = _number("H")
INT32: Final = _number("i")
INT64: Final = _number("q")
FLOAT64: Final = _number("d")
BOOL: Final = FieldType(_read_bool, lambda out, value: out.append(1 if value else 0))
OPTIONAL_TEXT: Final = FieldType(_read_optional_text, _write_optional_text)
TEXT: Final = FieldType(_required(_read_optional_text), _write_optional_text)
BYTES: Final = FieldType(_required(_read_bytes), _write_bytes)
UUID: Final = FieldType(_read_uuid, _write_uuid)


def optional_array_of(element: FieldType) -> FieldType:
    """Return the type of an array that may be null."""
    read_element, write_element = element

    def read(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        # Each element takes at least a byte, so a count is bounded by the bytes that are left.
        count, at = _read_length(data, at)
        if count < 0:
            return None, at
        values = []
        for _ in range(count):
            value, at = read_element(data, at)
            values.append(value)
        return values, at

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            out.append(0)
            return
        write_uvarint(out, len(values) + 1)
        for value in values:
            write_element(out, value)

    return FieldType(read, write)


def array_of(element: FieldType) -> FieldType:
    """Return the type of an array."""
    read, write = optional_array_of(element)
    return FieldType(_required(read), write)


def structure_of(fields: Sequence[Field], version: int = 0) -> FieldType:
    """Return the type of a structure, as a version has it: a dictionary of the fields' values. A tagged field
    that is not there has its default."""
    present = [each for each in fields if each.since <= version]
    plain = [
        (each.name, _resolved(each.type, version), each.default)
        for each in present
        if each.tag is None
    ]
    tagged = {
        each.tag: (each.name, _resolved(each.type, version), each.default)
        for each in present
        if each.tag is not None
    }
    readers = [(name, kind.read) for name, kind, _ in plain]
    defaults = {name: default for name, _, default in tagged.values()}

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for name, read_field in readers:
            values[name], at = read_field(data, at)
        values.update(defaults)
        if at < len(data) and data[at] == 0:  # by far the most frequent: no tagged fields
            return values, at + 1
        return values, _read_tags(data, at, values)

    def _read_tags(data: bytes, at: int, values: dict[str, Any]) -> int:
        count, at = read_uvarint(data, at)
        for _ in range(count):
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            if size > len(data) - at:
                raise _cut_off(at)
            raw = data[at : at + size]
            at += size
            known = tagged.get(tag)
            if known is None:
                values.setdefault(UNKNOWN_TAGS, {})[tag] = raw
                continue
            values[known[0]], end = known[1].read(raw, 0)
            if end != size:
                raise CorruptionError(
                    "metadata_record", f"tag {tag} has {size} bytes, and its value {end}"
                )
        return at

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, kind, default in plain:
            kind.write(out, values.get(name, default))
        tags: dict[int, bytes] = dict(values.get(UNKNOWN_TAGS, {}))
        for tag, (name, kind, default) in tagged.items():
            value = values.get(name, default)
            if value != default:
                raw = bytearray()
                kind.write(raw, value)
                tags[tag] = bytes(raw)
        write_uvarint(out, len(tags))
        for tag, stored in sorted(tags.items()):
            write_uvarint(out, tag)
            write_uvarint(out, len(stored))
            out += stored

    return FieldType(read, write)


def _resolved(kind: FieldType | Structure, version: int) -> FieldType:
    return structure_of(kind.fields, version) if isinstance(kind, Structure) else kind
