"""The five codecs in the framings that Kafka puts on disk; the grammar is in docs/formats/codecs.md,
and the code of each in ``codecs``.

Two rules hold for everything read here. Whatever is wrong with a payload ends in one
:class:`~stratalog.errors.CorruptionError`. And a size that a payload declares about itself is
believed only as far as so many bytes can hold so much, and never past the limit: memory stays
within the limit plus one block of the codec (64 KiB as Kafka writes it, 4 MiB at the most).

What Kafka's Java reader accepts is accepted, with what follows the payload's end, too: the bytes
behind an lz4 end mark or a gzip member are ignored, behind a zstd frame they are an error.
"""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptionError, InvalidRecordError, UsageError
from stratalog.records.codecs import gzip, lz4, snappy, zstd
from stratalog.records.codecs.damage import RefusedError, damaged
from stratalog.records.codecs.scratch import SCRATCH_KEPT_MAX, Scratch
from stratalog.records.layout import Codec, Magic, Reason
from stratalog.types import Bytes

__all__ = ["DECOMPRESSED_SIZE_MAX_DEFAULT", "Decompressor", "compress", "snappy_raw"]

#: What a reader decompresses a batch to at most, unless it is given another limit.
DECOMPRESSED_SIZE_MAX_DEFAULT: Final = 256 << 20

# Plain integers for the hot path: looking up a member of an enumeration costs as much as a block.
_NONE: Final = int(Codec.NONE)
_GZIP: Final = int(Codec.GZIP)
_SNAPPY: Final = int(Codec.SNAPPY)
_LZ4: Final = int(Codec.LZ4)
_ZSTD: Final = int(Codec.ZSTD)
_CODECS: Final = tuple(int(codec) for codec in Codec)
_MAGICS: Final = tuple(int(magic) for magic in Magic)

# codec: (lowest level, highest level, the one that is taken when none is named)
_LEVELS: Final = {_GZIP: gzip.LEVELS, _LZ4: lz4.LEVELS, _ZSTD: zstd.LEVELS}


def compress(
    codec: Codec,
    data: Bytes,
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
            return gzip.write(view, chosen)
        if codec == _SNAPPY:
            return snappy.write(view)
        if codec == _LZ4:
            return lz4.write(view, chosen, magic)
        if codec == _ZSTD:
            return zstd.write(view, chosen)
    except RefusedError as refusal:
        raise InvalidRecordError(
            f"{Codec(codec).text} cannot compress these {len(view)} bytes: {refusal}"
        ) from None
    return view.toreadonly()


def snappy_raw(data: Bytes) -> memoryview:
    """One raw snappy block without Kafka's stream header, as librdkafka writes it."""
    view = _byte_view(data)
    try:
        return snappy.write_raw(view)
    except RefusedError as refusal:
        raise InvalidRecordError(f"snappy cannot compress {len(view)} bytes: {refusal}") from None


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
        self._scratch = Scratch(size_max)

    def decompress(self, codec: Codec | int, data: Bytes, *, magic: int = 2) -> memoryview:
        """The decompressed bytes, read-only, valid until the next call on this object.

        What was never compressed comes back as a view of ``data`` itself.
        """
        view = _byte_view(data)
        if codec == _NONE:
            return view.toreadonly()
        size = self._decode(codec, view, magic)
        return self._scratch.decoded[:size]

    def decompress_owned(self, codec: Codec | int, data: Bytes, *, magic: int = 2) -> memoryview:
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
            raise damaged(codec, "there is not one byte of it")
        if codec == _SNAPPY:
            return snappy.read(view, self._scratch)
        if codec == _LZ4:
            return lz4.read(view, self._scratch, magic)
        if codec == _ZSTD and magic >= 2:
            return zstd.read(view, self._scratch)
        if codec == _GZIP:
            return gzip.read(view, self._scratch)
        raise CorruptionError(
            Reason.UNKNOWN_CODEC.name.lower(),
            f"codec {int(codec)} is not one that magic {magic} can have",
        )


def _checked_level(codec: int, level: int | None, magic: int) -> int:
    """The level for the library, after everything that the caller may have got wrong."""
    try:
        codec = Codec(codec)
    except ValueError:
        raise UsageError(f"there is no codec {codec}; known are 0 to 4") from None
    if magic not in _MAGICS:
        raise _unknown_magic(magic)
    name = codec.text
    if codec == _ZSTD and magic < 2:
        raise InvalidRecordError(f"zstd needs magic 2; a message of magic {magic} cannot carry it")
    if codec not in _LEVELS:
        if level is not None:
            raise UsageError(f"{name} has no levels; leave level out")
        return 0
    lowest, highest, default = _LEVELS[codec]
    if level is None or (codec == _GZIP and level == gzip.LEVEL_UNNAMED):
        return default
    if not lowest <= level <= highest:
        also = f" or {gzip.LEVEL_UNNAMED}" if codec == _GZIP else ""
        raise UsageError(f"{name} has no level {level}; use {lowest} to {highest}{also}")
    return level


def _byte_view(data: Bytes) -> memoryview:
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
