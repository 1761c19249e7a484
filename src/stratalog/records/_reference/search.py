"""The search for a batch among bytes that are none: what lies after damage, position by position."""

from __future__ import annotations

from stratalog.records._reference.cursor import Buffer, Wrong
from stratalog.records._reference.headers import (
    Header,
    Stop,
    crc_matches,
    integer_at,
    parse_batch_header,
    region_of,
)
from stratalog.records._reference.v07 import crc_matches_v07, parse_entry_v07
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    INT32_MAX,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    MESSAGE_KEY_AT_V0,
    MESSAGE_KEY_AT_V1,
    MESSAGE_SIZE_MIN_V0,
    MESSAGE_SIZE_MIN_V1,
    OFFSET_AT,
    SIZE_AT,
    V07_ATTRIBUTES_AT,
    V07_CODEC_MASK,
    V07_LENGTH_MIN_V0,
    V07_LENGTH_SIZE,
    V07_MAGIC_AT,
    Codec,
    Ending,
)

_LEGACY_ATTRIBUTES_MAX = 0x0F  # codec and timestamp type: magic 0 and 1 have no others


class _TooManyError(Exception):
    """More bytes than the limit would have to be checked."""


def find_intact(
    data: Buffer,
    position: int,
    limit: int,
    rest: int,
    first_offset: int,
    last_offset: int,
    size_max: int = INT32_MAX,
    checked_max: int = INT64_MAX,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int]:
    view = region_of(data, position, limit)
    needed = BATCH_HEADER_SIZE if rest else LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0
    checked = 0
    for at in range(position, limit - needed + 1):
        header = _plausible(view, at, limit, rest, size_max)
        offset = integer_at(view, at + OFFSET_AT, 8)
        if header is None or not first_offset <= offset <= last_offset:
            continue
        if header.size > limit - at:
            return -1, at, header.size, checked
        checked += header.size
        if checked > checked_max:
            return -2, at, header.size, checked
        if crc_matches(view, header):
            return 1, at, header.size, checked
    return 0, limit if rest == 0 else max(position, limit - needed + 1), 0, checked


def _plausible(
    data: memoryview, position: int, limit: int, rest: int, size_max: int
) -> Header | None:
    """The header of an entry that may end after the limit, as far as its CRC needs it."""
    room = limit - position
    size = integer_at(data, position + SIZE_AT, 4)
    total = size + LOG_OVERHEAD
    magic = data[position + MAGIC_AT]
    if magic > 2 or size < MESSAGE_SIZE_MIN_V0 or total > min(size_max, room + rest):
        return None
    if magic < 2:
        return _plausible_message(data, position, room, size)
    if size < BATCH_LENGTH_MIN or room < BATCH_HEADER_SIZE:
        return None
    try:
        return parse_batch_header(data, position, total)
    except Wrong:
        return None


def _plausible_message(data: memoryview, position: int, room: int, size: int) -> Header | None:
    magic = data[position + MAGIC_AT]
    least = MESSAGE_SIZE_MIN_V1 if magic == 1 else MESSAGE_SIZE_MIN_V0
    if size < least or room < LOG_OVERHEAD + least:
        return None
    attributes = data[position + MESSAGE_ATTRIBUTES_AT]
    if attributes > _LEGACY_ATTRIBUTES_MAX or attributes & CODEC_MASK > Codec.LZ4:
        return None
    key_at = position + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
    if not -1 <= integer_at(data, key_at, 4) <= size - least:
        return None
    offset = integer_at(data, position + OFFSET_AT, 8)
    return Header(
        position=position,
        size=size + LOG_OVERHEAD,
        magic=magic,
        attributes=attributes,
        base_offset=offset,
        last_offset=offset,
        count=-1,
        crc=integer_at(data, position + MESSAGE_CRC_AT, 4, signed=False),
        payload=(key_at, position + size + LOG_OVERHEAD),
    )


def find_intact_v07(
    data: Buffer,
    position: int,
    limit: int,
    rest: int,
    size_max: int = INT32_MAX,
    checked_max: int = INT64_MAX,
) -> tuple[int, int, int, int]:
    view = region_of(data, position, limit)
    needed = V07_LENGTH_SIZE + V07_LENGTH_MIN_V0 + (1 if rest else 0)
    checked = 0
    for at in range(position, limit - needed + 1):
        length = integer_at(view, at, 4)
        size = length + V07_LENGTH_SIZE
        magic = view[at + V07_MAGIC_AT]
        if magic > 1 or size > min(size_max, limit - at + rest):
            continue
        if length < V07_LENGTH_MIN_V0 + magic:
            continue
        if magic == 1 and view[at + V07_ATTRIBUTES_AT] & V07_CODEC_MASK > Codec.SNAPPY:
            continue
        if size > limit - at:
            return -1, at, size, checked
        try:
            is_intact, checked = _is_intact_v07(view, at, limit, rest, checked, checked_max)
        except _TooManyError as error:
            return -2, at, size, error.args[0]
        if is_intact:
            return 1, at, size, checked
    return 0, limit if rest == 0 else max(position, limit - needed + 1), 0, checked


def _is_intact_v07(
    data: memoryview, position: int, limit: int, rest: int, checked: int, checked_max: int
) -> tuple[bool, int]:
    """The CRC of an empty message proves nothing: what follows it must."""
    while True:
        try:
            header = parse_entry_v07(data, position, limit, 0)
        except Stop as stop:
            ends_well = stop.ending == Ending.END or (stop.ending == Ending.INCOMPLETE and rest > 0)
            return ends_well, checked
        checked += header.size
        if checked > checked_max:
            raise _TooManyError(checked)
        if not crc_matches_v07(data, header):
            return False, checked
        if header.payload[0] < header.payload[1]:
            return True, checked
        position += header.size
