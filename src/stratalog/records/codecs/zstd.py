"""zstd: frames (RFC 8878)."""

from __future__ import annotations

import struct
from typing import Final

from stratalog.records.codecs.damage import call_library, damaged
from stratalog.records.codecs.scratch import Scratch, read_within
from stratalog.records.layout import Codec

__all__ = ["LEVELS", "read", "write"]

LEVELS: Final = (-131072, 22, 3)  # lowest, highest, and what is taken when none is named

_CODEC: Final = int(Codec.ZSTD)
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a first byte of 0x50 to 0x5f
_BLOCK_SIZE_MAX: Final = 128 * 1024
_CHECKSUM: Final = 0x04
_U32: Final = struct.Struct("<I")


def write(view: memoryview, level: int) -> memoryview:
    """One frame."""
    import cramjam

    return memoryview(call_library(cramjam.zstd.compress, view, level))


def read(view: memoryview, scratch: Scratch) -> int:
    """Decode into ``scratch`` and say how many bytes there are."""
    import cramjam

    bound = at = 0
    try:
        while at < len(view):
            size, at = _measure_frame(view, at)
            bound += size
    except IndexError:
        at = len(view) + 1
    if at > len(view):
        raise damaged(_CODEC, "it ends inside a frame")
    return read_within(_CODEC, cramjam.zstd.decompress_into, view, bound, scratch)


def _measure_frame(view: memoryview, at: int) -> tuple[int, int]:
    """The most that a frame can decode to, and where it ends, from its block headers alone.

    Past the end of ``view`` it is an IndexError, or an end that lies behind it.
    """
    if bytes(view[at : at + 4]) != _MAGIC:
        return 0, _skipped_frame(view, at)
    descriptor = view[at + 4]
    declared, at = _content_size(view, at + 5, descriptor)
    bound = last = 0
    while not last:
        word = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == 3 or size > _BLOCK_SIZE_MAX:
            raise damaged(_CODEC, f"a block of kind {kind} with {size} bytes")
        # Kinds: 0 stored, 1 one byte repeated, 2 compressed.
        bound += _BLOCK_SIZE_MAX if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    if descriptor & _CHECKSUM:
        at += 4
    if declared is None:
        return bound, at
    if declared > bound:
        raise damaged(_CODEC, f"its blocks cannot be the {declared} bytes it declares")
    return declared, at  # the library refuses a frame that has more or less


def _content_size(view: memoryview, at: int, descriptor: int) -> tuple[int | None, int]:
    """The content size if it is stated, and where the blocks begin."""
    single_segment = descriptor >> 5 & 1
    field_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    at += (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]  # window and dictionary id
    if not field_size:
        return None, at
    declared = int.from_bytes(view[at : at + field_size], "little")
    return declared + (256 if field_size == 2 else 0), at + field_size


def _skipped_frame(view: memoryview, at: int) -> int:
    if view[at] >> 4 != 5 or bytes(view[at + 1 : at + 4]) != _SKIPPABLE:
        raise damaged(_CODEC, f"there is no frame magic at byte {at}")
    if len(view) - at < 8:
        return len(view) + 1
    (size,) = _U32.unpack_from(view, at + 4)
    return at + 8 + int(size)
