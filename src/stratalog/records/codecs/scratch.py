"""Where payloads are decoded: a buffer that is kept, its limit, and how far a size is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stratalog.errors import LimitExceededError
from stratalog.records.codecs.damage import RefusedError, call_library, damaged, too_large
from stratalog.records.layout import Reason

__all__ = ["SCRATCH_KEPT_MAX", "Scratch", "believed_size", "read_within"]

# A first attempt takes what real records need; only when that was too little does the next one
# take four times as much. What is above SCRATCH_KEPT_MAX is given back by the first call that can
# do with less.
SCRATCH_KEPT_MAX: Final = 16 * 1024 * 1024
_SCRATCH_START: Final = 64 * 1024
_BELIEVED_SIZE: Final = 1024 * 1024
_BELIEVED_RATIO: Final = 64
_MARK: Final = 1

_Decode = Callable[[memoryview, memoryview], int]


class Scratch:
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
        roomy = max(_SCRATCH_START, size + size // 8)
        try:
            self._take(bytearray(max(size, min(roomy, self.size_max))))
        except (MemoryError, OverflowError):
            raise LimitExceededError(
                Reason.DECOMPRESSED_TOO_LARGE.name.lower(),
                f"there is no memory for {size} decompressed bytes",
                advice="lower max_decompressed_bytes, or free memory",
            ) from None

    def drop(self) -> None:
        """Let go of the buffer; views of it stay good."""
        self._take(bytearray())


def believed_size(view: memoryview) -> int:
    """The size that a payload of real records may have without its being proven."""
    return max(_BELIEVED_SIZE, _BELIEVED_RATIO * len(view))


def read_within(codec: int, decode: _Decode, view: memoryview, bound: int, scratch: Scratch) -> int:
    """Decode a payload of which is known only that it has at most ``bound`` bytes.

    The library says "refused" both for damage and for too little room. With room for the bound
    it can only be damage; before that, the next attempt gets more room.
    """
    most = min(bound, scratch.size_max)
    room = most if most <= scratch.size else min(most, believed_size(view))
    while True:
        out = scratch.room(room)[:room]
        if most < bound:
            out[-1] = _MARK
        try:
            return call_library(decode, view, out)
        except RefusedError as refusal:
            if room < most:
                room = min(most, 4 * room)
                del out  # or it would keep the old buffer while the new one comes
                continue
            if most < bound and (out[-1] != _MARK or _reaches_end(decode, view, out)):
                raise too_large(codec, scratch.size_max) from None
            raise damaged(codec, str(refusal)) from None


def _reaches_end(decode: _Decode, view: memoryview, out: memoryview) -> bool:
    """Whether a refused payload gets as far as the last byte of ``out``.

    The library does not tell how far it got. The byte still has its mark: either it was not
    reached, or the payload has the same value there. A second mark tells the two apart.
    """
    out[-1] = _MARK ^ 1
    try:
        call_library(decode, view, out)
    except RefusedError:
        return out[-1] == _MARK
    return False
