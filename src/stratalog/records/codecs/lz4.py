"""lz4: frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from stratalog.records.codecs.damage import call_library, damaged, refusal, too_large
from stratalog.records.codecs.scratch import Scratch, believed_size, read_within
from stratalog.records.layout import Codec

__all__ = ["LEVELS", "read", "write"]

_LEVEL_FAST: Final = 9  # Kafka's default level means the fast compressor; all others mean HC
_LEVEL_HC_MIN: Final = 2
_LEVEL_HC_MAX: Final = 12
LEVELS: Final = (1, 17, _LEVEL_FAST)  # lowest, highest, and what is taken when none is named

_CODEC: Final = int(Codec.LZ4)
_MAGIC: Final = b"\x04\x22\x4d\x18"
_VERSION: Final = 0x40
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_RESERVED: Final = 0x03
_STORED: Final = 0x80000000
_FLAGS_WRITTEN: Final = _VERSION | _INDEPENDENT
_BLOCK_64K: Final = 0x40
_BLOCK_SIZE: Final = 64 * 1024
_BLOCK_SLACK: Final = _BLOCK_SIZE // 255 + 17
_STAGE_STEP: Final = 256
_END_MARK: Final = bytes(4)
_U32: Final = struct.Struct("<I")


#: Start, end, whether it is stored raw, and the most that it can decode to.
_Block = tuple[int, int, bool, int]


class _Header(NamedTuple):
    flags: int
    block_size_max: int
    size: int  # the blocks begin here


def write(view: memoryview, level: int, magic: int) -> memoryview:
    """frame = magic, flags, block size, header checksum, blocks, end mark."""
    if level != _LEVEL_FAST:
        return _write_high(view, level, magic)
    import cramjam

    compress_block_into = cramjam.lz4.compress_block_into
    header = _header_bytes(_FLAGS_WRITTEN, _BLOCK_64K, magic)
    block_count = -(-len(view) // _BLOCK_SIZE)
    end = len(header)
    # A block takes at most its raw size in the end, but the library wants its own bound as room.
    out = memoryview(bytearray(end + len(view) + 4 * (block_count + 1) + _BLOCK_SLACK))
    out[:end] = header
    for start in range(0, len(view), _BLOCK_SIZE):
        block = view[start : start + _BLOCK_SIZE]
        size = call_library(compress_block_into, block, out[end + 4 :], store_size=False)
        stored = size >= len(block)
        if stored:
            size = len(block)
            out[end + 4 : end + 4 + size] = block
        _U32.pack_into(out, end, size | _STORED if stored else size)
        end += 4 + size
    out[end : end + 4] = _END_MARK
    return out[: end + 4]


def _write_high(view: memoryview, level: int, magic: int) -> memoryview:
    """The high compressor is reachable only through whole frames, and those have block checksums
    that Kafka does not write: take the blocks, leave the rest."""
    import cramjam

    hc_level = min(max(level, _LEVEL_HC_MIN), _LEVEL_HC_MAX)
    compressor = cramjam.lz4.Compressor(hc_level, content_checksum=False, block_linked=False)
    call_library(compressor.compress, bytes(view))
    made = memoryview(call_library(compressor.finish))
    parts: list[bytes | memoryview] = [_header_bytes(_FLAGS_WRITTEN, _BLOCK_64K, magic)]
    blocks = _blocks(made, _read_header(made, 2))
    parts += [made[start - 4 : end] for start, end, _, _ in blocks]
    parts.append(_END_MARK)
    return memoryview(b"".join(parts))


def read(view: memoryview, scratch: Scratch, magic: int) -> int:
    """Decode into ``scratch`` and say how many bytes there are.

    Independent blocks go straight into their place. There is always room for one block more than
    is asked for. So a block that the library refuses is damaged and not only too large; whether
    the limit is passed shows after it.
    """
    header = _read_header(view, magic)
    single = _single_block(view, header)
    if single is not None and single[3] <= scratch.size_max:
        return _decode_block(view, single, scratch.room(single[3] + _STAGE_STEP), 0)
    bound = largest = 0
    end = header.size
    for _, stop, _, block_bound in _blocks(view, header):
        end = stop
        bound += block_bound
        largest = max(largest, block_bound)
    if header.flags & (_INDEPENDENT | _BLOCK_CHECKSUM) != _INDEPENDENT:
        return _read_frame(view, header, end, bound, scratch)
    most = min(bound, scratch.size_max)
    slack = largest + 2 * _STAGE_STEP
    room = min(most, max(believed_size(view), scratch.size - slack))
    while True:
        end = _decode_blocks(view, header, scratch.room(room + slack), room)
        if end <= room:
            return end
        if room == scratch.size_max:
            raise too_large(_CODEC, scratch.size_max)
        room = min(most, 4 * room)


def _read_frame(view: memoryview, header: _Header, end: int, bound: int, scratch: Scratch) -> int:
    """Linked blocks, and block checksums (which Java verifies), are left to the library.

    It gets a frame without what Java ignores: content size and checksum, and the wrong header
    checksum of magic 0.
    """
    import cramjam

    flags = header.flags & (_VERSION | _INDEPENDENT | _BLOCK_CHECKSUM)
    if flags & _BLOCK_CHECKSUM and end > header.size:
        end += 4
    plain = b"".join((_header_bytes(flags, view[5], 2), view[header.size : end], _END_MARK))
    return read_within(_CODEC, cramjam.lz4.decompress_into, memoryview(plain), bound, scratch)


def _single_block(view: memoryview, header: _Header) -> _Block | None:
    """The block of a frame that has only this one, without checksums, as small batches have; None for all
    other frames, sound or not."""
    flags, block_size_max, at = header
    if flags & (_INDEPENDENT | _BLOCK_CHECKSUM | _CONTENT_CHECKSUM) != _INDEPENDENT:
        return None
    if len(view) < at + 8:
        return None
    (word,) = _U32.unpack_from(view, at)
    size = word & ~_STORED
    start = at + 4
    if not 0 < size <= block_size_max or start + size + 4 > len(view):
        return None
    if view[start + size : start + size + 4] != _END_MARK:
        return None
    stored = word != size
    return start, start + size, stored, size if stored else min(block_size_max, 255 * size)


def _blocks(view: memoryview, header: _Header) -> Iterator[_Block]:
    """Start, end, whether it is stored raw, and the most that it can decode to, of every block.

    What is behind the end mark is not looked at.
    """
    flags, block_size_max, at = header
    limit = len(view)
    checksum_size = 4 if flags & _BLOCK_CHECKSUM else 0
    while limit - at >= 4:
        (word,) = _U32.unpack_from(view, at)
        size = word & ~_STORED
        at += 4
        if size == 0:
            if flags & _CONTENT_CHECKSUM and limit - at < 4:
                raise damaged(_CODEC, "it ends inside the content checksum")
            return
        if size > block_size_max:
            raise damaged(_CODEC, f"a block of {size} bytes where {block_size_max} are allowed")
        if size + checksum_size > limit - at:
            raise damaged(_CODEC, "it ends inside a block")
        stored = word != size
        yield at, at + size, stored, size if stored else min(block_size_max, 255 * size)
        at += size + checksum_size
    raise damaged(_CODEC, "it ends without an end mark")


def _read_header(view: memoryview, magic: int) -> _Header:
    head = bytes(view[:15])
    if len(head) > 7 and not head[4] & _CONTENT_SIZE:
        head = head[:7]  # the same in nearly every batch
    return _parse_header(head, magic)


@lru_cache(maxsize=64)
def _parse_header(view: bytes, magic: int) -> _Header:
    if len(view) < 7:
        raise damaged(_CODEC, "it ends inside the frame header")
    if view[:4] != _MAGIC:
        raise damaged(_CODEC, "it does not start with the frame magic")
    flags, block_code = view[4], view[5]
    if flags >> 6 != _VERSION >> 6 or flags & _RESERVED:
        raise damaged(_CODEC, f"frame flags {flags:#04x} of an unknown version")
    if block_code & 0x8F or block_code < _BLOCK_64K:
        raise damaged(_CODEC, f"unknown block size {block_code:#04x}")
    at = 14 if flags & _CONTENT_SIZE else 6
    if len(view) <= at:
        raise damaged(_CODEC, "it ends inside the frame header")
    # Magic 0 was written with a wrong checksum for years: Kafka does not look at it there.
    if magic != 0 and view[at] != _header_checksum(view[4:at]):
        raise damaged(_CODEC, "the frame header does not match its checksum")
    return _Header(flags, 1 << (2 * (block_code >> 4) + 8), at + 1)


def _decode_blocks(view: memoryview, header: _Header, out: memoryview, size_max: int) -> int:
    """The decoded size, or one that is above ``size_max`` as soon as it is."""
    end = 0
    for block in _blocks(view, header):
        if end > size_max:
            break
        end = _decode_block(view, block, out, end)
    return end


def _decode_block(view: memoryview, block: _Block, out: memoryview, at: int) -> int:
    """Decode a block to ``out[at:]``, and say where it ends there.

    When the library cannot decode a bare block it tries again as if the block's size stood before
    it, and so makes other bytes out of damaged ones. Hence we do put a size before it, and one
    that is no beginning of a block: no literals, then a copy from before the start.
    """
    import cramjam

    start, stop, stored, bound = block
    if stored:
        out[at : at + bound] = view[start:stop]
        return at + bound
    room = (bound // _STAGE_STEP + 1) * _STAGE_STEP
    staged = b"".join((_U32.pack(room), view[start:stop]))
    try:
        size = cramjam.lz4.decompress_block_into(staged, out[at : at + room])
    except BaseException as error:  # noqa: BLE001
        raise damaged(_CODEC, refusal(error)) from None
    if size > bound:
        raise damaged(_CODEC, f"a block of more than {bound} decompressed bytes")
    return at + int(size)


def _header_bytes(flags: int, block_code: int, magic: int) -> bytes:
    """A frame header; for magic 0 with the checksum that Kafka computed over too many bytes."""
    descriptor = bytes((flags, block_code))
    hashed = _MAGIC + descriptor if magic == 0 else descriptor
    return _MAGIC + descriptor + bytes((_header_checksum(hashed),))


@lru_cache(maxsize=64)
def _header_checksum(data: bytes) -> int:
    """Bits 8 to 15 of XXH32 with seed 0, for inputs below 16 bytes."""
    assert len(data) < 16, "longer inputs take another path through XXH32"
    mask = 0xFFFFFFFF
    value = (0x165667B1 + len(data)) & mask
    words = len(data) // 4
    for (word,) in _U32.iter_unpack(data[: 4 * words]):
        value = (value + word * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) * 0x27D4EB2F) & mask
    for byte in data[4 * words :]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) * 0x9E3779B1) & mask
    value = ((value ^ value >> 15) * 0x85EBCA77) & mask
    value = ((value ^ value >> 13) * 0xC2B2AE3D) & mask
    return (value ^ value >> 16) >> 8 & 0xFF
