"""snappy: the xerial stream, or one raw block."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from stratalog.records.codecs.damage import call_library, damaged, refusal, too_large
from stratalog.records.codecs.scratch import Scratch
from stratalog.records.layout import Codec

__all__ = ["read", "write", "write_raw"]

_CODEC: Final = int(Codec.SNAPPY)
_MAGIC: Final = b"\x82SNAPPY\x00"
_MAGIC_SIZE: Final = len(_MAGIC)
_MAGIC_HEAD: Final = int.from_bytes(_MAGIC[:4], "big", signed=True)
_HEADER: Final = _MAGIC + struct.pack(">ii", 1, 1)  # version, oldest reader's version
_HEADER_SIZE: Final = len(_HEADER)
_BLOCK_SIZE: Final = 32 * 1024
_BLOCK_BOUND: Final = 32 + _BLOCK_SIZE + _BLOCK_SIZE // 6
_I32: Final = struct.Struct(">i")


def write(view: memoryview) -> memoryview:
    """stream = header, then per block: i32 compressed size, raw snappy block."""
    import cramjam

    compress_raw_into = cramjam.snappy.compress_raw_into
    block_count = -(-len(view) // _BLOCK_SIZE)
    end = _HEADER_SIZE
    out = memoryview(bytearray(end + block_count * (4 + _BLOCK_BOUND)))
    out[:end] = _HEADER
    for start in range(0, len(view), _BLOCK_SIZE):
        block = view[start : start + _BLOCK_SIZE]
        size = call_library(compress_raw_into, block, out[end + 4 : end + 4 + _BLOCK_BOUND])
        _I32.pack_into(out, end, size)
        end += 4 + size
    return out[:end]


def write_raw(view: memoryview) -> memoryview:
    """One raw block without the stream header."""
    import cramjam

    return memoryview(call_library(cramjam.snappy.compress_raw, view))


def read(view: memoryview, scratch: Scratch) -> int:
    """Decode into ``scratch`` and say how many bytes there are."""
    import cramjam

    read_size = cramjam.snappy.decompress_raw_len
    decode = cramjam.snappy.decompress_raw_into
    total = 0
    for block in _blocks(view):
        total += _declared_size(block, read_size)
    if total > scratch.size_max:
        raise too_large(_CODEC, scratch.size_max)
    out = scratch.room(total)
    end = 0
    try:
        for block in _blocks(view):
            end += decode(block, out[end:total])
    except BaseException as error:  # noqa: BLE001
        raise damaged(_CODEC, refusal(error)) from None
    return end


def _blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of a stream; without a stream header the whole input is one."""
    if len(view) < _HEADER_SIZE or bytes(view[:_MAGIC_SIZE]) != _MAGIC:
        yield view
        return
    _check_header(view)
    at, limit = _HEADER_SIZE, len(view)
    while limit - at >= 4:  # fewer are no block, and Java ignores them
        (size,) = _I32.unpack_from(view, at)
        if size == _MAGIC_HEAD:  # another stream was put behind the first
            _check_header(view[at:])
            at += _HEADER_SIZE
            continue
        at += 4
        if not 0 < size <= limit - at:
            raise damaged(_CODEC, f"a block of {size} bytes where {limit - at} are left")
        yield view[at : at + size]
        at += size


def _check_header(view: memoryview) -> None:
    if len(view) < _HEADER_SIZE:
        raise damaged(_CODEC, "it ends inside a stream header")
    if bytes(view[:_MAGIC_SIZE]) != _MAGIC:
        raise damaged(_CODEC, "a stream header with a wrong magic")
    (version,) = _I32.unpack_from(view, _MAGIC_SIZE)
    if version < 1:
        raise damaged(_CODEC, f"a stream of version {version}")


def _declared_size(block: memoryview, read_size: Callable[[memoryview], int]) -> int:
    """What a raw block declares, if its bytes can make that: three of them copy at most 64."""
    try:
        size = read_size(block)
    except BaseException as error:  # noqa: BLE001
        raise damaged(_CODEC, refusal(error)) from None
    if 3 * size > 64 * len(block):
        raise damaged(
            _CODEC, f"a block of {len(block)} bytes cannot be the {size} bytes it declares"
        )
    return size
