"""gzip: members (RFC 1952)."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from stratalog.records.codecs.damage import RefusedError, call_library, damaged, too_large
from stratalog.records.codecs.scratch import Scratch, believed_size
from stratalog.records.layout import Codec

__all__ = ["LEVELS", "LEVEL_UNNAMED", "read", "write"]

LEVELS: Final = (1, 9, 6)  # lowest, highest, and what the library gets when none is named
LEVEL_UNNAMED: Final = -1  # Kafka's number for naming none

_CODEC: Final = int(Codec.GZIP)
_MEMBER_SIZE_MIN: Final = 18
_MEMBER_MAGIC: Final = b"\x1f\x8b\x08"
_STEP: Final = 64 * 1024
_EXTRA_FLAGS_AT: Final = 8
_U32: Final = struct.Struct("<I")


def write(view: memoryview, level: int) -> memoryview:
    """One member."""
    import cramjam

    member = memoryview(call_library(cramjam.gzip.compress, view, level))
    if member[_EXTRA_FLAGS_AT] == 0:
        return member
    # Java never says how hard it tried; neither do we.
    plain = bytearray(member)
    plain[_EXTRA_FLAGS_AT] = 0
    return memoryview(plain)


def read(view: memoryview, scratch: Scratch) -> int:
    """Decode into ``scratch`` and say how many bytes there are."""
    import cramjam

    decode = cramjam.gzip.decompress_into
    # Nearly always there is one member, and it ends with its size.
    size = _U32.unpack_from(view, len(view) - 4)[0] if len(view) >= 4 else 0
    if size <= scratch.size_max and size <= believed_size(view):
        try:
            return call_library(decode, view, scratch.room(size)[:size])
        except RefusedError:
            pass
    size, end = _measure(view, scratch.size_max)
    try:
        return call_library(decode, view[:end], scratch.room(size)[:size])
    except RefusedError as refusal:
        raise damaged(_CODEC, str(refusal)) from None


def _measure(view: memoryview, size_max: int) -> tuple[int, int]:
    """The decompressed size of all members, and where the last one ends.

    Behind a member Java looks for a next one; what does not start like one is ignored.
    """
    size = end = 0
    while True:
        size, end = _measure_member(view, end, size, size_max)
        rest = len(view) - end
        if rest < _MEMBER_SIZE_MIN or bytes(view[end : end + 3]) != _MEMBER_MAGIC:
            return size, end


def _measure_member(view: memoryview, at: int, size: int, size_max: int) -> tuple[int, int]:
    """Inflate the member at ``at`` step by step, keeping nothing but the sum of sizes."""
    inflater = zlib.decompressobj(wbits=31)
    while not inflater.eof:
        chunk: bytes | memoryview = view[at : at + _STEP]
        if not chunk:
            raise damaged(_CODEC, "it ends inside a member")
        at += len(chunk)
        while chunk and not inflater.eof:
            try:
                size += len(inflater.decompress(chunk, _STEP))
            except zlib.error as error:
                raise damaged(_CODEC, str(error)) from None
            if size > size_max:
                raise too_large(_CODEC, size_max)
            chunk = inflater.unconsumed_tail
    return size, at - len(inflater.unused_data)
