"""What to make of bytes that are no batch: the traces of a power cut, or damage that must not be cut away.

Behind the recovery point a power cut may leave anything: part of a batch, zeros, blocks of a later write
without those before them. All that is to be expected, and cut. But a batch that is wrong while sound ones
stand behind it may also be a bit that flipped in records that somebody relies on; cutting there would throw
away good records for a bad one. The two are told apart by what a lost write leaves: zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT, Reason
from stratalog.storage.files.filesystem import ReadableFile

__all__ = ["LimitError", "OnDamage", "Verdict", "judge_tail", "sound_positions"]

#: A lost write shows as a block of zeros. Headers have short runs of them, and values may have long ones:
#: so what is cut while sound batches follow is kept in a file beside the log.
_LOST_ZEROS_MIN: Final = 64
#: What a disk writes at once, or not at all.
_SECTOR_BYTES: Final = 512
_OFFSET_BYTES: Final = 8
_READ_BYTES: Final = 1 << 20
#: How many bytes are checked at most to find a sound batch: bytes can be made in which every place looks
#: like the start of a large one.
_CHECKED_MAX: Final = 4 << 30
_CHECKED_LEAST: Final = 4096  # what a small one costs
#: How a batch goes on behind the first bytes of its offset: a size that is not zero, an epoch or a CRC; then
#: one of the old formats with attributes that they have, or a CRC, any attributes and a number of offsets.
_HEADER: Final = rb".{6}(?!\0{4})[\0-\x7f].{7}(?:[\0\x01][\0-\x0f].{6}|\x02.{6}[\0-\x7f])"
_HEADER_BYTES: Final = MAGIC_AT + 8
#: How far above its first the offsets of a segment may lie; twice that, for one that is too wide.
_WIDEST: Final = 1 << 32
#: How many zeros a batch that is followed by zeros may end with: of its last header, value or count.
_ZEROS_OF_A_BATCH: Final = 64


class _Covered(NamedTuple):
    """What a format's CRC covers: where it stands, from where on, and how long a batch is at least."""

    crc_at: int
    first: int
    least: int
    crc: Callable[[bytes, int], int]


_COVERED: Final = {
    0: _Covered(LOG_OVERHEAD, MAGIC_AT, LOG_OVERHEAD + 14, kernel.crc32),  # and 1
    2: _Covered(MAGIC_AT + 1, MAGIC_AT + 5, BATCH_HEADER_SIZE, kernel.crc32c),
}


class OnDamage(StrEnum):
    """What recovery does where an intact batch follows a damaged one."""

    REFUSE = "refuse"  # the log does not open, and nothing is truncated
    CUT = "cut"  # truncate at the damage, as Kafka does, but keep what is truncated in other files


class Verdict(NamedTuple):
    """Whether a tail may be cut, and why."""

    may_cut: bool
    detail: str
    #: Where the first sound batch behind the damage starts; None where there is none.
    sound_position: int | None = None

    @property
    def may_lose(self) -> bool:
        """Whether sound batches may be among what would be cut."""
        return self.sound_position is not None or not self.may_cut


def judge_tail(file: ReadableFile, pause: WalkEnd, size_bytes: int, base_offset: int) -> Verdict:
    """Judge the bytes from where a walk over the segment at ``base_offset`` came to its end up to
    ``size_bytes``: the next batch was to be there, and is not."""
    start = pause.position
    rest = size_bytes - start
    if pause.reason == Reason.ZERO_TAIL:
        return Verdict(True, f"the last {rest} bytes are zeros")
    try:
        sound = _find_sound(file, start, size_bytes, base_offset)
    except LimitError:
        return Verdict(
            False, "too many candidates follow to decide whether one of them is an intact batch"
        )
    if sound is None:
        return Verdict(True, f"the last {rest} bytes hold no complete batch")
    if _has_lost_write(file, start, sound):
        return Verdict(True, "a write before it was lost", sound)
    if sound == start:
        # No CRC covers the offset and the size of a batch.
        return Verdict(False, "its bytes match their CRC: it was written completely", sound)
    return Verdict(
        False, f"the batch is damaged, and intact batches follow from byte {sound}", sound
    )


class LimitError(Exception):
    """More was checked than there can be reason for."""


def _find_sound(file: ReadableFile, start: int, end: int, base_offset: int) -> int | None:
    """The position of the first batch, or message of the old formats, whose CRC is right.

    Of the very first, what no CRC covers may be what is wrong with it. A later one is of the segment: below
    the expected offset, it tells that one before it is wrong.
    """
    if _is_sound_but_for_its_head(file, start, end):
        return start
    return next((each for each in sound_positions(file, start, end, base_offset)), None)


def sound_positions(file: ReadableFile, start: int, end: int, base_offset: int) -> Iterator[int]:
    """Yield the positions after ``start`` where a batch or message of the segment matches its CRC. Some may
    lie inside others: a value can hold a batch."""
    # All offsets of a segment begin alike, and a search for these two bytes is fast.
    heads = {each.to_bytes(8, "big")[:2] for each in (base_offset, base_offset + _WIDEST)}
    header = re.compile(b"(?:" + b"|".join(map(re.escape, heads)) + b")" + _HEADER, re.DOTALL)
    checked = 0
    for at, data in _windows(file, start, end, _HEADER_BYTES - 1):
        if data.count(0) == len(data):
            continue
        here = -1
        while (match := header.search(data, here + 1)) is not None:
            here = match.start()
            position = at + here
            offset = int.from_bytes(data[here : here + _OFFSET_BYTES], "big")
            size = _size_at(data, here)
            if position == start or offset < base_offset or size > end - position:
                continue
            if data[here + MAGIC_AT] < 2 and not _has_fields(data, here, size):
                continue
            checked += max(size, _CHECKED_LEAST)
            if checked > _CHECKED_MAX:
                raise LimitError
            if _is_sound(file, position, end, size=size):
                yield position


def _size_at(data: bytes, at: int) -> int:
    """How long the batch is, as it says itself."""
    return LOG_OVERHEAD + int.from_bytes(data[at + _OFFSET_BYTES : at + LOG_OVERHEAD], "big")


def _has_fields(data: bytes, at: int, size: int) -> bool:
    """Whether a message's key can be as long as it says; true where the window ends before that."""
    key_at = at + MAGIC_AT + (2 if data[at + MAGIC_AT] == 0 else 10)
    length = data[key_at : key_at + 4]
    return len(length) < 4 or -1 <= int.from_bytes(length, "big", signed=True) < size


def _is_sound(file: ReadableFile, position: int, end: int, *, size: int) -> bool:
    """Whether a batch of ``size`` bytes matches its CRC. Nothing else of it is looked at: what a broker
    wrote and nobody can read is not for recovery to cut."""
    magic = file.read(position + MAGIC_AT, 1)
    covered = _COVERED[2 if magic == b"\x02" else 0]
    return _matches(file, position, end, covered, {size})


def _is_sound_but_for_its_head(file: ReadableFile, start: int, end: int) -> bool:
    """Whether the batch at ``start`` matches its CRC, whatever its offset is, whichever format it claims to
    be of, and if not as long as it says, then so long as a flipped bit, or the end of what was written
    behind it, would explain: no CRC covers these."""
    header = file.read(start, min(BATCH_HEADER_SIZE, end - start))
    if len(header) < _HEADER_BYTES:
        return False
    said = _size_at(header, 0)
    sizes = {said, end - start}
    sizes |= {LOG_OVERHEAD + ((said - LOG_OVERHEAD) ^ (1 << bit)) for bit in range(32)}
    # A batch may itself end with zeros, but with few.
    zeros_at = _zeros_from(file, start, end)
    sizes |= set(range(zeros_at - start, zeros_at - start + _ZEROS_OF_A_BATCH))
    return any(_matches(file, start, end, covered, sizes) for covered in _COVERED.values())


def _matches(
    file: ReadableFile, position: int, end: int, covered: _Covered, sizes: set[int]
) -> bool:
    """Whether bytes from ``position`` on match the CRC that stands there, for one of these sizes."""
    crc_at, first, least, crc = covered
    sizes = {size for size in sizes if least <= size <= end - position}
    stored = file.read(position + crc_at, 4)
    at, value = position + first, 0
    for size in sorted(sizes):
        for _, data in _windows(file, at, position + size):
            value = crc(data, value)
        at = position + size
        if value == int.from_bytes(stored, "big"):
            return True
    return False


def _zeros_from(file: ReadableFile, start: int, end: int) -> int:
    """From where on there are only zeros."""
    at = end
    while at > start:
        size = min(_READ_BYTES, at - start)
        kept = file.read(at - size, size).rstrip(b"\0")
        if kept:
            return at - size + len(kept)
        at -= size
    return start


def _windows(
    file: ReadableFile, start: int, end: int, overlap: int = 0
) -> Iterator[tuple[int, bytes]]:
    """The bytes of a file, some at a time; each time the last few of the time before come again."""
    at = start
    while at < end:
        data = file.read(at, min(_READ_BYTES, end - at))
        yield at, data
        if len(data) <= overlap or at + len(data) >= end:
            return
        at += len(data) - overlap


def _has_lost_write(file: ReadableFile, start: int, end: int) -> bool:
    """Whether zeros stand where a batch was to be: a run of them, or fewer up to the end of a sector, whose
    last bytes these were. Less than an offset is nothing: its first bytes may well be zeros."""
    in_sector = _SECTOR_BYTES - start % _SECTOR_BYTES
    if in_sector >= _OFFSET_BYTES and not any(file.read(start, in_sector)):
        return True
    zeros = bytes(_LOST_ZEROS_MIN)
    return any(zeros in data for _, data in _windows(file, start, end, _LOST_ZEROS_MIN - 1))
