"""The five codecs in the framings that Kafka puts on disk; the grammar is in docs/formats/codecs.md.

Two rules hold for everything read here. Whatever is wrong with a payload ends in one
:class:`~stratalog.errors.CorruptionError`. And a size that a payload declares about itself is
believed only as far as so many bytes can hold so much, and never past the limit: memory stays
within the limit plus one block of the codec (64 KiB as Kafka writes it, 4 MiB at the most).

What Kafka's Java reader accepts is accepted, with what follows the payload's end, too: the bytes
behind an lz4 end mark or a gzip member are ignored, behind a zstd frame they are an error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, ParamSpec, TypeVar

from stratalog.errors import CorruptionError, InvalidRecordError, LimitExceededError, UsageError
from stratalog.records.layout import Codec, Magic, Reason

__all__ = ["DECOMPRESSED_SIZE_MAX_DEFAULT", "Decompressor", "compress", "snappy_raw"]

DECOMPRESSED_SIZE_MAX_DEFAULT: Final = 256 * 1024 * 1024

# The scratch buffer. A first attempt takes what real records need; only when that was too little
# does the next one take four times as much. What is above SCRATCH_KEPT_MAX is given back by the
# first call that can do with less.
SCRATCH_START: Final = 64 * 1024
SCRATCH_KEPT_MAX: Final = 16 * 1024 * 1024
_BELIEVED_SIZE: Final = 1024 * 1024
_BELIEVED_RATIO: Final = 64
_MARK: Final = 1

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_MAGIC_SIZE: Final = len(_SNAPPY_MAGIC)
_SNAPPY_MAGIC_HEAD: Final = int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True)
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest reader's version
_SNAPPY_HEADER_SIZE: Final = len(_SNAPPY_HEADER)
_SNAPPY_BLOCK_SIZE: Final = 32 * 1024
_SNAPPY_BLOCK_BOUND: Final = 32 + _SNAPPY_BLOCK_SIZE + _SNAPPY_BLOCK_SIZE // 6

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_RESERVED: Final = 0x03
_LZ4_STORED: Final = 0x80000000
_LZ4_FLAGS_WRITTEN: Final = _LZ4_VERSION | _LZ4_INDEPENDENT
_LZ4_BLOCK_64K: Final = 0x40
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_BLOCK_SLACK: Final = _LZ4_BLOCK_SIZE // 255 + 17
_LZ4_STAGE_STEP: Final = 256
_LZ4_END_MARK: Final = bytes(4)

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a first byte of 0x50 to 0x5f
_ZSTD_BLOCK_SIZE_MAX: Final = 128 * 1024
_ZSTD_CHECKSUM: Final = 0x04

_GZIP_MEMBER_SIZE_MIN: Final = 18
_GZIP_MEMBER_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_STEP: Final = 64 * 1024
_GZIP_EXTRA_FLAGS_AT: Final = 8

_I32: Final = struct.Struct(">i")
_U32_LE: Final = struct.Struct("<I")

# Plain integers for the hot path: looking up a member of an enumeration costs as much as a block.
_NONE: Final = int(Codec.NONE)
_GZIP: Final = int(Codec.GZIP)
_SNAPPY: Final = int(Codec.SNAPPY)
_LZ4: Final = int(Codec.LZ4)
_ZSTD: Final = int(Codec.ZSTD)
_CODECS: Final = tuple(int(codec) for codec in Codec)
_MAGICS: Final = tuple(int(magic) for magic in Magic)

# codec: (lowest level, highest level, the level that the library gets when none is named)
_LEVELS: Final = {_GZIP: (1, 9, 6), _LZ4: (1, 17, 9), _ZSTD: (-131072, 22, 3)}
_GZIP_LEVEL_DEFAULT: Final = -1
_LZ4_LEVEL_FAST: Final = 9  # Kafka's default level means the fast compressor; all others mean HC
_LZ4_LEVEL_HC_MIN: Final = 2
_LZ4_LEVEL_HC_MAX: Final = 12

_Decode = Callable[[memoryview, memoryview], int]
_P = ParamSpec("_P")
_R = TypeVar("_R")


# --- writing ------------------------------------------------------------------------------------


def compress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    *,
    level: int | None = None,
    magic: int = 2,
) -> memoryview | bytes:
    """``data`` as the payload of a batch or wrapper of this magic, framed as Kafka frames it.

    ``level`` is Kafka's: gzip -1 and 1 to 9, lz4 1 to 17, zstd -131072 to 22; snappy and none
    have no levels.
    """
    view = _byte_view(data)
    chosen = _checked_level(codec, level, magic)
    try:
        if codec == _GZIP:
            return _write_gzip(view, chosen)
        if codec == _SNAPPY:
            return _write_snappy(view)
        if codec == _LZ4:
            return _write_lz4(view, chosen, magic)
        if codec == _ZSTD:
            return _write_zstd(view, chosen)
    except _RefusedError as refusal:
        raise InvalidRecordError(
            f"{_name(codec)} cannot compress these {len(view)} bytes: {refusal}"
        ) from None
    return view.toreadonly()


def snappy_raw(data: bytes | bytearray | memoryview) -> memoryview:
    """One raw snappy block without Kafka's stream header, as librdkafka writes it."""
    import cramjam

    view = _byte_view(data)
    try:
        return memoryview(_call(cramjam.snappy.compress_raw, view))
    except _RefusedError as refusal:
        raise InvalidRecordError(f"snappy cannot compress {len(view)} bytes: {refusal}") from None


def _checked_level(codec: int, level: int | None, magic: int) -> int:
    """The level for the library, after everything that the caller may have got wrong."""
    try:
        codec = Codec(codec)
    except ValueError:
        raise UsageError(f"there is no codec {codec}; known are 0 to 4") from None
    if magic not in _MAGICS:
        raise _unknown_magic(magic)
    name = codec.name.lower()
    if codec == _ZSTD and magic < 2:
        raise InvalidRecordError(f"zstd needs magic 2; a message of magic {magic} cannot carry it")
    if codec not in _LEVELS:
        if level is not None:
            raise UsageError(f"{name} has no levels; leave level out")
        return 0
    lowest, highest, default = _LEVELS[codec]
    if level is None or (codec == _GZIP and level == _GZIP_LEVEL_DEFAULT):
        return default
    if not lowest <= level <= highest:
        also = f" or {_GZIP_LEVEL_DEFAULT}" if codec == _GZIP else ""
        raise UsageError(f"{name} has no level {level}; use {lowest} to {highest}{also}")
    return level


def _write_gzip(view: memoryview, level: int) -> memoryview:
    import cramjam

    member = memoryview(_call(cramjam.gzip.compress, view, level))
    if member[_GZIP_EXTRA_FLAGS_AT] == 0:
        return member
    # Java never says how hard it tried; neither do we.
    plain = bytearray(member)
    plain[_GZIP_EXTRA_FLAGS_AT] = 0
    return memoryview(plain)


def _write_zstd(view: memoryview, level: int) -> memoryview:
    import cramjam

    return memoryview(_call(cramjam.zstd.compress, view, level))


def _write_snappy(view: memoryview) -> memoryview:
    """stream = header, then per block: i32 compressed size, raw snappy block."""
    import cramjam

    compress_raw_into = cramjam.snappy.compress_raw_into
    block_count = -(-len(view) // _SNAPPY_BLOCK_SIZE)
    end = _SNAPPY_HEADER_SIZE
    out = memoryview(bytearray(end + block_count * (4 + _SNAPPY_BLOCK_BOUND)))
    out[:end] = _SNAPPY_HEADER
    for start in range(0, len(view), _SNAPPY_BLOCK_SIZE):
        block = view[start : start + _SNAPPY_BLOCK_SIZE]
        size = _call(compress_raw_into, block, out[end + 4 : end + 4 + _SNAPPY_BLOCK_BOUND])
        _I32.pack_into(out, end, size)
        end += 4 + size
    return out[:end]


def _write_lz4(view: memoryview, level: int, magic: int) -> memoryview:
    """frame = magic, flags, block size, header checksum, blocks, end mark."""
    if level != _LZ4_LEVEL_FAST:
        return _write_lz4_high(view, level, magic)
    import cramjam

    compress_block_into = cramjam.lz4.compress_block_into
    header = _lz4_header(_LZ4_FLAGS_WRITTEN, _LZ4_BLOCK_64K, magic)
    block_count = -(-len(view) // _LZ4_BLOCK_SIZE)
    end = len(header)
    # A block takes at most its raw size in the end, but the library wants its own bound as room.
    out = memoryview(bytearray(end + len(view) + 4 * (block_count + 1) + _LZ4_BLOCK_SLACK))
    out[:end] = header
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        size = _call(compress_block_into, block, out[end + 4 :], store_size=False)
        stored = size >= len(block)
        if stored:
            size = len(block)
            out[end + 4 : end + 4 + size] = block
        _U32_LE.pack_into(out, end, size | _LZ4_STORED if stored else size)
        end += 4 + size
    out[end : end + 4] = _LZ4_END_MARK
    return out[: end + 4]


def _write_lz4_high(view: memoryview, level: int, magic: int) -> memoryview:
    """The high compressor is reachable only through whole frames, and those have block checksums
    that Kafka does not write: take the blocks, leave the rest."""
    import cramjam

    hc_level = min(max(level, _LZ4_LEVEL_HC_MIN), _LZ4_LEVEL_HC_MAX)
    compressor = cramjam.lz4.Compressor(hc_level, content_checksum=False, block_linked=False)
    _call(compressor.compress, bytes(view))
    made = memoryview(_call(compressor.finish))
    parts: list[bytes | memoryview] = [_lz4_header(_LZ4_FLAGS_WRITTEN, _LZ4_BLOCK_64K, magic)]
    blocks = _lz4_blocks(made, _read_lz4_header(made, 2))
    parts += [made[start - 4 : end] for start, end, _, _ in blocks]
    parts.append(_LZ4_END_MARK)
    return memoryview(b"".join(parts))


# --- reading ------------------------------------------------------------------------------------


class Decompressor:
    """Decompresses payloads one after the other into a buffer that it keeps.

    One thread at a time: the library lets other threads run while it decodes. The buffer is the
    largest payload seen, at most ``size_max`` and a block; above 16 MiB it is given back by the
    first call that needs less.
    """

    __slots__ = ("_scratch",)

    def __init__(self, size_max: int = DECOMPRESSED_SIZE_MAX_DEFAULT) -> None:
        if size_max < 1:
            raise UsageError(f"max_decompressed_bytes is {size_max}; it must be 1 or more")
        self._scratch = _Scratch(size_max)

    def decompress(
        self, codec: Codec | int, data: bytes | bytearray | memoryview, *, magic: int = 2
    ) -> memoryview:
        """The decompressed bytes, read-only, valid until the next call on this object.

        What was never compressed comes back as a view of ``data`` itself.
        """
        view = _byte_view(data)
        if codec == _NONE:
            return view.toreadonly()
        size = self._decode(codec, view, magic)
        return self._scratch.decoded[:size]

    def decompress_owned(
        self, codec: Codec | int, data: bytes | bytearray | memoryview, *, magic: int = 2
    ) -> memoryview:
        """The decompressed bytes, read-only, in memory of their own that is never reused.

        Views from :meth:`decompress` are overwritten by this call, too.
        """
        view = _byte_view(data)
        if codec == _NONE:
            return memoryview(bytes(view))
        size = self._decode(codec, view, magic)
        if size > SCRATCH_KEPT_MAX:
            # Too large to keep anyway: hand it over instead of holding it twice.
            decoded = self._scratch.decoded[:size]
            self._scratch.drop()
            return decoded
        return memoryview(bytes(self._scratch.decoded[:size]))

    def _decode(self, codec: int, view: memoryview, magic: int) -> int:
        """Decode into the scratch buffer and say how many bytes there are."""
        if magic not in _MAGICS:
            raise _unknown_magic(magic)
        if not view and codec in _CODECS:
            raise _damage(codec, "there is not one byte of it")
        if codec == _SNAPPY:
            return _read_snappy(view, self._scratch)
        if codec == _LZ4:
            return _read_lz4(view, magic, self._scratch)
        if codec == _ZSTD and magic >= 2:
            return _read_zstd(view, self._scratch)
        if codec == _GZIP:
            return _read_gzip(view, self._scratch)
        raise CorruptionError(
            Reason.UNKNOWN_CODEC.name.lower(),
            f"codec {int(codec)} is not one that magic {magic} can have",
        )


class _Scratch:
    """A buffer that is replaced, never resized: somebody may still hold a view of it."""

    __slots__ = ("decoded", "size", "size_max", "view")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._take(bytearray())

    def _take(self, buffer: bytearray) -> None:
        self.size = len(buffer)
        self.view = memoryview(buffer)
        self.decoded = self.view.toreadonly()

    def room(self, size: int) -> memoryview:
        """At least ``size`` writable bytes, whatever is in them."""
        if size > self.size or size <= SCRATCH_KEPT_MAX < self.size:
            self._replace(size)
        return self.view

    def _replace(self, size: int) -> None:
        self.drop()  # before the new one comes: the peak is one of them
        # An eighth more, or payloads that grow a little each time would each need a new buffer.
        roomy = max(SCRATCH_START, size + size // 8)
        try:
            self._take(bytearray(max(size, min(roomy, self.size_max))))
        except (MemoryError, OverflowError):
            raise LimitExceededError(
                Reason.DECOMPRESSED_TOO_LARGE.name.lower(),
                f"there is no memory for {size} decompressed bytes",
                advice="lower max_decompressed_bytes, or free memory",
            ) from None

    def drop(self) -> None:
        self._take(bytearray())


def _read_within(
    codec: int, decode: _Decode, view: memoryview, bound: int, scratch: _Scratch
) -> int:
    """Decode a payload of which is known only that it has at most ``bound`` bytes.

    The library says "refused" both for damage and for too little room. With room for the bound
    it can only be damage; before that, the next attempt gets more room.
    """
    most = min(bound, scratch.size_max)
    room = most if most <= scratch.size else min(most, _believed(view))
    while True:
        out = scratch.room(room)[:room]
        if most < bound:
            out[-1] = _MARK
        try:
            return _call(decode, view, out)
        except _RefusedError as refusal:
            if room < most:
                room = min(most, 4 * room)
                del out  # or it would keep the old buffer while the new one comes
                continue
            if most < bound and (out[-1] != _MARK or _reaches_end(decode, view, out)):
                raise _too_large(codec, scratch.size_max) from None
            raise _damage(codec, str(refusal)) from None


def _reaches_end(decode: _Decode, view: memoryview, out: memoryview) -> bool:
    """Whether a refused payload gets as far as the last byte of ``out``.

    The library does not tell how far it got. The byte still has its mark: either it was not
    reached, or the payload has the same value there. A second mark tells the two apart.
    """
    out[-1] = _MARK ^ 1
    try:
        _call(decode, view, out)
    except _RefusedError:
        return out[-1] == _MARK
    return False


# --- gzip: members (RFC 1952) -------------------------------------------------------------------


def _read_gzip(view: memoryview, scratch: _Scratch) -> int:
    import cramjam

    decode = cramjam.gzip.decompress_into
    # Nearly always there is one member, and it ends with its size.
    size = _U32_LE.unpack_from(view, len(view) - 4)[0] if len(view) >= 4 else 0
    if size <= scratch.size_max and size <= _believed(view):
        try:
            return _call(decode, view, scratch.room(size)[:size])
        except _RefusedError:
            pass
    size, end = _measure_gzip(view, scratch.size_max)
    try:
        return _call(decode, view[:end], scratch.room(size)[:size])
    except _RefusedError as refusal:
        raise _damage(_GZIP, str(refusal)) from None


def _measure_gzip(view: memoryview, size_max: int) -> tuple[int, int]:
    """The decompressed size of all members, and where the last one ends.

    Behind a member Java looks for a next one; what does not start like one is ignored.
    """
    size = end = 0
    while True:
        size, end = _measure_member(view, end, size, size_max)
        rest = len(view) - end
        if rest < _GZIP_MEMBER_SIZE_MIN or bytes(view[end : end + 3]) != _GZIP_MEMBER_MAGIC:
            return size, end


def _measure_member(view: memoryview, at: int, size: int, size_max: int) -> tuple[int, int]:
    """Inflate the member at ``at`` step by step, keeping nothing but the sum of sizes."""
    inflater = zlib.decompressobj(wbits=31)
    while not inflater.eof:
        chunk: bytes | memoryview = view[at : at + _GZIP_STEP]
        if not chunk:
            raise _damage(_GZIP, "it ends inside a member")
        at += len(chunk)
        while chunk and not inflater.eof:
            try:
                size += len(inflater.decompress(chunk, _GZIP_STEP))
            except zlib.error as error:
                raise _damage(_GZIP, str(error)) from None
            if size > size_max:
                raise _too_large(_GZIP, size_max)
            chunk = inflater.unconsumed_tail
    return size, at - len(inflater.unused_data)


# --- snappy: xerial stream, or one raw block ----------------------------------------------------


def _read_snappy(view: memoryview, scratch: _Scratch) -> int:
    import cramjam

    read_size = cramjam.snappy.decompress_raw_len
    decode = cramjam.snappy.decompress_raw_into
    total = 0
    for block in _snappy_blocks(view):
        total += _snappy_size(block, read_size)
    if total > scratch.size_max:
        raise _too_large(_SNAPPY, scratch.size_max)
    out = scratch.room(total)
    end = 0
    try:
        for block in _snappy_blocks(view):
            end += decode(block, out[end:total])
    except BaseException as error:  # noqa: BLE001
        raise _damage(_SNAPPY, _refusal(error)) from None
    return end


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of a stream; without a stream header the whole input is one."""
    if len(view) < _SNAPPY_HEADER_SIZE or bytes(view[:_SNAPPY_MAGIC_SIZE]) != _SNAPPY_MAGIC:
        yield view
        return
    _check_snappy_header(view)
    at, limit = _SNAPPY_HEADER_SIZE, len(view)
    while limit - at >= 4:  # fewer are no block, and Java ignores them
        (size,) = _I32.unpack_from(view, at)
        if size == _SNAPPY_MAGIC_HEAD:  # another stream was put behind the first
            _check_snappy_header(view[at:])
            at += _SNAPPY_HEADER_SIZE
            continue
        at += 4
        if not 0 < size <= limit - at:
            raise _damage(_SNAPPY, f"a block of {size} bytes where {limit - at} are left")
        yield view[at : at + size]
        at += size


def _check_snappy_header(view: memoryview) -> None:
    if len(view) < _SNAPPY_HEADER_SIZE:
        raise _damage(_SNAPPY, "it ends inside a stream header")
    if bytes(view[:_SNAPPY_MAGIC_SIZE]) != _SNAPPY_MAGIC:
        raise _damage(_SNAPPY, "a stream header with a wrong magic")
    (version,) = _I32.unpack_from(view, _SNAPPY_MAGIC_SIZE)
    if version < 1:
        raise _damage(_SNAPPY, f"a stream of version {version}")


def _snappy_size(block: memoryview, read_size: Callable[[memoryview], int]) -> int:
    """What a raw block declares, if its bytes can make that: three of them copy at most 64."""
    try:
        size = read_size(block)
    except BaseException as error:  # noqa: BLE001
        raise _damage(_SNAPPY, _refusal(error)) from None
    if 3 * size > 64 * len(block):
        raise _damage(
            _SNAPPY, f"a block of {len(block)} bytes cannot be the {size} bytes it declares"
        )
    return size


# --- lz4: frames --------------------------------------------------------------------------------


class _Lz4Header(NamedTuple):
    flags: int
    block_size_max: int
    size: int  # the blocks begin here


def _read_lz4(view: memoryview, magic: int, scratch: _Scratch) -> int:
    """Independent blocks go straight into their place.

    There is always room for one block more than is asked for. So a block that the library refuses
    is damaged and not only too large; whether the limit is passed shows after it.
    """
    header = _read_lz4_header(view, magic)
    bound = largest = 0
    end = header.size
    for _, stop, _, block_bound in _lz4_blocks(view, header):
        end = stop
        bound += block_bound
        largest = max(largest, block_bound)
    if header.flags & (_LZ4_INDEPENDENT | _LZ4_BLOCK_CHECKSUM) != _LZ4_INDEPENDENT:
        return _read_lz4_frame(view, header, end, bound, scratch)
    most = min(bound, scratch.size_max)
    slack = largest + 2 * _LZ4_STAGE_STEP
    room = min(most, max(_believed(view), scratch.size - slack))
    while True:
        end = _decode_lz4_blocks(view, header, scratch.room(room + slack), room)
        if end <= room:
            return end
        if room == scratch.size_max:
            raise _too_large(_LZ4, scratch.size_max)
        room = min(most, 4 * room)


def _read_lz4_frame(
    view: memoryview, header: _Lz4Header, end: int, bound: int, scratch: _Scratch
) -> int:
    """Linked blocks, and block checksums (which Java verifies), are left to the library.

    It gets a frame without what Java ignores: content size and checksum, and the wrong header
    checksum of magic 0.
    """
    import cramjam

    flags = header.flags & (_LZ4_VERSION | _LZ4_INDEPENDENT | _LZ4_BLOCK_CHECKSUM)
    if flags & _LZ4_BLOCK_CHECKSUM and end > header.size:
        end += 4
    plain = b"".join((_lz4_header(flags, view[5], 2), view[header.size : end], _LZ4_END_MARK))
    return _read_within(_LZ4, cramjam.lz4.decompress_into, memoryview(plain), bound, scratch)


def _lz4_blocks(view: memoryview, header: _Lz4Header) -> Iterator[tuple[int, int, bool, int]]:
    """Start, end, whether it is stored raw, and the most that it can decode to, of every block.

    What is behind the end mark is not looked at.
    """
    flags, block_size_max, at = header
    limit = len(view)
    checksum_size = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while limit - at >= 4:
        (word,) = _U32_LE.unpack_from(view, at)
        size = word & ~_LZ4_STORED
        at += 4
        if size == 0:
            if flags & _LZ4_CONTENT_CHECKSUM and limit - at < 4:
                raise _damage(_LZ4, "it ends inside the content checksum")
            return
        if size > block_size_max:
            raise _damage(_LZ4, f"a block of {size} bytes where {block_size_max} are allowed")
        if size + checksum_size > limit - at:
            raise _damage(_LZ4, "it ends inside a block")
        stored = word != size
        yield at, at + size, stored, size if stored else min(block_size_max, 255 * size)
        at += size + checksum_size
    raise _damage(_LZ4, "it ends without an end mark")


def _read_lz4_header(view: memoryview, magic: int) -> _Lz4Header:
    if len(view) < 7:
        raise _damage(_LZ4, "it ends inside the frame header")
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise _damage(_LZ4, "it does not start with the frame magic")
    flags, block_code = view[4], view[5]
    if flags >> 6 != _LZ4_VERSION >> 6 or flags & _LZ4_RESERVED:
        raise _damage(_LZ4, f"frame flags {flags:#04x} of an unknown version")
    if block_code & 0x8F or block_code < _LZ4_BLOCK_64K:
        raise _damage(_LZ4, f"unknown block size {block_code:#04x}")
    at = 14 if flags & _LZ4_CONTENT_SIZE else 6
    if len(view) <= at:
        raise _damage(_LZ4, "it ends inside the frame header")
    # Magic 0 was written with a wrong checksum for years: Kafka does not look at it there.
    if magic != 0 and view[at] != _lz4_header_checksum(bytes(view[4:at])):
        raise _damage(_LZ4, "the frame header does not match its checksum")
    return _Lz4Header(flags, 1 << (2 * (block_code >> 4) + 8), at + 1)


def _decode_lz4_blocks(view: memoryview, header: _Lz4Header, out: memoryview, size_max: int) -> int:
    """The decoded size, or one that is above ``size_max`` as soon as it is.

    When the library cannot decode a bare block it tries again as if the block's size stood before
    it, and so makes other bytes out of damaged ones. Hence we do put a size before it, and one
    that is no beginning of a block: no literals, then a copy from before the start.
    """
    import cramjam

    decode = cramjam.lz4.decompress_block_into
    end = 0
    for start, stop, stored, bound in _lz4_blocks(view, header):
        if end > size_max:
            break
        if stored:
            out[end : end + bound] = view[start:stop]
            end += bound
            continue
        room = (bound // _LZ4_STAGE_STEP + 1) * _LZ4_STAGE_STEP
        staged = b"".join((_U32_LE.pack(room), view[start:stop]))
        try:
            size = decode(staged, out[end : end + room])
        except BaseException as error:  # noqa: BLE001
            raise _damage(_LZ4, _refusal(error)) from None
        if size > bound:
            raise _damage(_LZ4, f"a block of more than {bound} decompressed bytes")
        end += size
    return end


def _lz4_header(flags: int, block_code: int, magic: int) -> bytes:
    """A frame header; for magic 0 with the checksum that Kafka computed over too many bytes."""
    descriptor = bytes((flags, block_code))
    hashed = _LZ4_MAGIC + descriptor if magic == 0 else descriptor
    return _LZ4_MAGIC + descriptor + bytes((_lz4_header_checksum(hashed),))


@lru_cache(maxsize=64)
def _lz4_header_checksum(data: bytes) -> int:
    """Bits 8 to 15 of XXH32 with seed 0, for inputs below 16 bytes."""
    assert len(data) < 16, "longer inputs take another path through XXH32"
    mask = 0xFFFFFFFF
    value = (0x165667B1 + len(data)) & mask
    words = len(data) // 4
    for (word,) in _U32_LE.iter_unpack(data[: 4 * words]):
        value = (value + word * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) * 0x27D4EB2F) & mask
    for byte in data[4 * words :]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) * 0x9E3779B1) & mask
    value = ((value ^ value >> 15) * 0x85EBCA77) & mask
    value = ((value ^ value >> 13) * 0xC2B2AE3D) & mask
    return (value ^ value >> 16) >> 8 & 0xFF


# --- zstd: frames (RFC 8878) --------------------------------------------------------------------


def _read_zstd(view: memoryview, scratch: _Scratch) -> int:
    import cramjam

    bound = at = 0
    try:
        while at < len(view):
            size, at = _measure_zstd_frame(view, at)
            bound += size
    except IndexError:
        at = len(view) + 1
    if at > len(view):
        raise _damage(_ZSTD, "it ends inside a frame")
    return _read_within(_ZSTD, cramjam.zstd.decompress_into, view, bound, scratch)


def _measure_zstd_frame(view: memoryview, at: int) -> tuple[int, int]:
    """The most that a frame can decode to, and where it ends, from its block headers alone.

    Past the end of ``view`` it is an IndexError, or an end that lies behind it.
    """
    if bytes(view[at : at + 4]) != _ZSTD_MAGIC:
        return 0, _skipped_zstd_frame(view, at)
    descriptor = view[at + 4]
    declared, at = _zstd_content_size(view, at + 5, descriptor)
    bound = last = 0
    while not last:
        word = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == 3 or size > _ZSTD_BLOCK_SIZE_MAX:
            raise _damage(_ZSTD, f"a block of kind {kind} with {size} bytes")
        # Kinds: 0 stored, 1 one byte repeated, 2 compressed.
        bound += _ZSTD_BLOCK_SIZE_MAX if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    if descriptor & _ZSTD_CHECKSUM:
        at += 4
    if declared is None:
        return bound, at
    if declared > bound:
        raise _damage(_ZSTD, f"its blocks cannot be the {declared} bytes it declares")
    return declared, at  # the library refuses a frame that has more or less


def _zstd_content_size(view: memoryview, at: int, descriptor: int) -> tuple[int | None, int]:
    """The content size if it is stated, and where the blocks begin."""
    single_segment = descriptor >> 5 & 1
    field_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    at += (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]  # window and dictionary id
    if not field_size:
        return None, at
    declared = int.from_bytes(view[at : at + field_size], "little")
    return declared + (256 if field_size == 2 else 0), at + field_size


def _skipped_zstd_frame(view: memoryview, at: int) -> int:
    if view[at] >> 4 != 5 or bytes(view[at + 1 : at + 4]) != _ZSTD_SKIPPABLE:
        raise _damage(_ZSTD, f"there is no frame magic at byte {at}")
    if len(view) - at < 8:
        return len(view) + 1
    (size,) = _U32_LE.unpack_from(view, at + 4)
    return at + 8 + int(size)


# --- shared -------------------------------------------------------------------------------------


class _RefusedError(Exception):
    """The library would not: damaged input, or too little room for the output."""


def _call(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001
        raise _RefusedError(_refusal(error)) from None


def _refusal(error: BaseException) -> str:
    """What the library said. A panic inside it is no Exception, so everything is caught."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return str(error) or type(error).__name__


def _believed(view: memoryview) -> int:
    """The size that a payload of real records may have without its being proven."""
    return max(_BELIEVED_SIZE, _BELIEVED_RATIO * len(view))


def _byte_view(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        view = memoryview(data)
    except TypeError:
        raise UsageError(f"data must be bytes, not {type(data).__name__}") from None
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    try:
        return view.cast("B")
    except TypeError:
        raise UsageError("data must be contiguous; pass bytes(data)") from None


def _unknown_magic(magic: int) -> UsageError:
    return UsageError(f"there is no magic {magic}; known are 0, 1 and 2")


def _name(codec: int) -> str:
    return Codec(codec).name.lower()


def _damage(codec: int, cause: str) -> CorruptionError:
    return CorruptionError(
        Reason.COMPRESSED_DATA.name.lower(),
        f"the {_name(codec)} payload cannot be decompressed: {cause}",
        advice="if the batch's CRC is right, its producer wrote it so and every copy is alike",
    )


def _too_large(codec: int, size_max: int) -> LimitExceededError:
    return LimitExceededError(
        Reason.DECOMPRESSED_TOO_LARGE.name.lower(),
        f"the {_name(codec)} payload decompresses to more than {size_max} bytes",
        advice="raise max_decompressed_bytes if its records are really that large",
    )
