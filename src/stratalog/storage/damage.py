"""What to make of bytes that are no batch: the traces of a power cut, or damage that must not be cut away.

Behind the recovery point a power cut may leave anything: part of a batch, zeros, blocks of a later write
without those before them. All that is to be expected, and cut. But a batch that is wrong while sound ones
stand behind it may also be a bit that flipped in records that somebody relies on; cutting there would throw
away good records for a bad one. The two are told apart by what a lost write leaves: zeros.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.layout import BATCH_HEADER_SIZE, INT32_MAX, MAGIC_AT, ROW_WIDTH, Check
from stratalog.storage.filesystem import ReadableFile

__all__ = ["OnDamage", "Verdict", "judge_tail"]

#: A lost write shows as a block of zeros. Headers have short runs of them, and values may have long ones:
#: so what is cut while sound batches follow is kept in a file beside the log.
_LOST_ZEROS_MIN: Final = 64
#: What a disk writes at once, or not at all.
_SECTOR_BYTES: Final = 512
_OFFSET_BYTES: Final = 8
#: How far behind the damage a sound batch is searched for.
_SEARCH_BYTES: Final = 4 << 20


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


def judge_tail(file: ReadableFile, position: int, size_bytes: int, base_offset: int) -> Verdict:
    """Judge the bytes from ``position`` up to ``size_bytes``, where the next batch of the segment at
    ``base_offset`` was to be, and is not."""
    size = min(size_bytes - position, _SEARCH_BYTES)
    data = bytearray(size)
    size = file.read_into(position, memoryview(data))
    sound = _find_sound(data, size, base_offset)
    if sound is None:
        return Verdict(True, f"no whole batch lies in the last {size_bytes - position} bytes")
    if _has_lost_write(data, sound, position):
        return Verdict(True, "a write before it was lost", position + sound)
    if sound == 0:
        return Verdict(False, "the batch is sound but for its offset", position)
    return Verdict(
        False, f"the batch is damaged, and sound ones follow from byte {position + sound} on",
        position + sound,
    )  # fmt: skip


def _find_sound(data: bytearray, size: int, base_offset: int) -> int | None:
    """The position of the first batch of magic 2 whose CRC is right. The offset of the very first, which no
    CRC covers, may be what is wrong. A later one is of the segment: below the expected offset, it tells that
    one before it is wrong."""
    rows = memoryview(bytearray(8 * ROW_WIDTH)).cast("q")
    at = data.find(2, MAGIC_AT)
    while at >= 0 and at - MAGIC_AT + BATCH_HEADER_SIZE <= size:
        start = at - MAGIC_AT
        offset = int.from_bytes(data[start : start + 8], "big", signed=True)
        length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
        if (start == 0 or offset >= base_offset) and 49 <= length <= size - start - 12:
            batch = bytes(8) + data[start + 8 : start + 12 + length]
            held, *_ = kernel.walk(batch, 0, len(batch), rows, Check.CRC, -1, INT32_MAX)
            if held:
                return start
        at = data.find(2, at + 1)
    return None


def _has_lost_write(data: bytearray, end: int, position: int) -> bool:
    """Whether zeros stand where a batch was to be: a run of them, or fewer up to the end of a sector, whose
    last bytes these were. Less than an offset is nothing: its first bytes may well be zeros."""
    in_sector = _SECTOR_BYTES - position % _SECTOR_BYTES
    is_sector = in_sector >= _OFFSET_BYTES and not any(data[:in_sector])
    return is_sector or bytes(_LOST_ZEROS_MIN) in data[:end]
