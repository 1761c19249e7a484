"""What to make of bytes that are no batch: the traces of a power cut, or damage that must not be cut away.

Behind the recovery point a power cut may leave anything: part of a batch, zeros, blocks of a later write
without those before them. All that is to be expected, and cut. But a batch that is wrong while sound ones
stand behind it may also be a bit that flipped in records that somebody relies on; cutting there would throw
away good records for a bad one. The two are told apart by what a lost write leaves: zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.columns import Pause
from stratalog.records.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT, Reason
from stratalog.storage.filesystem import ReadableFile

__all__ = ["OnDamage", "Verdict", "judge_tail"]

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
#: one of the old formats with attributes that they have, or a CRC, attributes and a number of offsets.
_HEADER: Final = (
    rb".{6}(?!\0{4})[\0-\x7f].{7}(?:[\0\x01][\0-\x0f].{6}|\x02.{4}\0[\0-\x7f][\0-\x7f])"
)
_HEADER_BYTES: Final = MAGIC_AT + 8
#: A message of magic 0 without key and value.
_LEAST_MESSAGE: Final = LOG_OVERHEAD + 14


class OnDamage(StrEnum):
    """What recovery does where a sound batch stands behind a damaged one."""

    REFUSE = "refuse"  # the log does not open, and nothing is cut
    CUT = "cut"  # as Kafka does: everything from the damage on goes


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


def judge_tail(file: ReadableFile, pause: Pause, size_bytes: int, base_offset: int) -> Verdict:
    """Judge the bytes from where a walk over the segment at ``base_offset`` came to its end up to
    ``size_bytes``: the next batch was to be there, and is not."""
    start = pause.position
    rest = size_bytes - start
    if pause.reason == Reason.ZERO_TAIL:
        return Verdict(True, f"the last {rest} bytes are zeros")
    try:
        sound = _find_sound(file, start, size_bytes, base_offset)
    except _LimitError:
        return Verdict(
            False, "too much of what follows looks like a batch to tell whether any is sound"
        )
    if sound is None:
        return Verdict(True, f"no whole batch lies in the last {rest} bytes")
    if _has_lost_write(file, start, sound):
        return Verdict(True, "a write before it was lost", sound)
    if sound == start:
        # No CRC covers the offset and the size of a batch.
        return Verdict(False, "its bytes match their CRC: it was written whole", sound)
    return Verdict(
        False, f"the batch is damaged, and sound ones follow from byte {sound} on", sound
    )


class _LimitError(Exception):
    """More was checked than there can be reason for."""


def _find_sound(file: ReadableFile, start: int, end: int, base_offset: int) -> int | None:
    """The position of the first batch, or message of the old formats, whose CRC is right.

    The offset of the very first may be what is wrong with it, and so may its size, if it is the last.
    A later one is of the segment: below the expected offset, it tells that one before it is wrong.
    """
    if _is_sound(file, start, end, size=None) or _is_sound(file, start, end, size=end - start):
        return start
    # All offsets of a segment begin alike, and a search for these two bytes is fast.
    header = re.compile(re.escape(base_offset.to_bytes(8, "big")[:2]) + _HEADER, re.DOTALL)
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
                raise _LimitError
            if _is_sound(file, position, end, size=size):
                return position
    return None


def _size_at(data: bytes, at: int) -> int:
    """How long the batch is, as it says itself."""
    return LOG_OVERHEAD + int.from_bytes(data[at + _OFFSET_BYTES : at + LOG_OVERHEAD], "big")


def _has_fields(data: bytes, at: int, size: int) -> bool:
    """Whether a message's key can be as long as it says; true where the window ends before that."""
    key_at = at + MAGIC_AT + (2 if data[at + MAGIC_AT] == 0 else 10)
    length = data[key_at : key_at + 4]
    return len(length) < 4 or -1 <= int.from_bytes(length, "big", signed=True) < size


def _is_sound(file: ReadableFile, position: int, end: int, *, size: int | None) -> bool:
    """Whether a batch of ``size`` bytes, or of as many as it says, matches its CRC. Nothing else of it is
    looked at: what a broker wrote and nobody can read is not for recovery to cut."""
    header = file.read(position, min(BATCH_HEADER_SIZE, end - position))
    if len(header) < _HEADER_BYTES:
        return False
    if size is None:
        size = _size_at(header, 0)
    if header[MAGIC_AT] == 2:
        crc_at, first, least, crc = MAGIC_AT + 1, MAGIC_AT + 5, BATCH_HEADER_SIZE, kernel.crc32c
    elif header[MAGIC_AT] in (0, 1):
        crc_at, first, least, crc = LOG_OVERHEAD, MAGIC_AT, _LEAST_MESSAGE, kernel.crc32
    else:
        return False
    if not least <= size <= end - position:
        return False
    value = 0
    for _, data in _windows(file, position + first, position + size):
        value = crc(data, value)
    return value == int.from_bytes(header[crc_at : crc_at + 4], "big")


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
