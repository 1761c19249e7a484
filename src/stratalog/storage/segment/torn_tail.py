"""A batch that reaches beyond the end of its file: a torn tail, or a wrong size that hides what follows it.

A walk sees the same in both. A writer that died, or is still writing, leaves part of a batch and nothing
more. No CRC covers a size: with one bit of it flipped, a batch in the middle of a log seems to be the last
one, cut off, and every intact batch after it is taken for a part of it. So every walk over a file ends with a
search of the bytes that the batch claims (``classify_tail``). Recovery does the same search before it
truncates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.errors import CorruptionError
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, INT64_MAX, LOG_OVERHEAD, Ending, Reason
from stratalog.records.reasons import RESTORE
from stratalog.storage.segment.batch_at import is_batch_at
from stratalog.storage.segment.log_file import LogFile

__all__ = ["OversizedBatchEnd", "classify_tail"]


@dataclass(frozen=True, slots=True)
class OversizedBatchEnd(WalkEnd):
    """The end at a batch whose size reaches beyond the file while intact batches follow: damage that looks
    like a torn tail. The reason is the same, the remedy is not."""

    def error(self) -> CorruptionError:
        error = WalkEnd.error(self)
        return CorruptionError(error.reason, error.detail, position=error.position, advice=RESTORE)


def classify_tail(log_file: LogFile, pause: WalkEnd) -> WalkEnd:
    """Return how a file ends: CORRUPT if the batch that seems cut off hides intact ones, else ``pause``. All
    bytes from there on are searched."""
    if pause.ending != Ending.INCOMPLETE or pause.reason != Reason.SHORT_TAIL or log_file.is_v07:
        return pause
    # Imported only here: reading a log that ends as it should does not need it.
    from stratalog.storage.segment.tail_verdict import judge_tail

    file, position = log_file.file, pause.position
    head = file.read(position, LOG_OVERHEAD)
    size = min(log_file.size, file.size())
    verdict = judge_tail(file, pause, size, log_file.base_offset or 0)
    if not verdict.may_lose or _is_being_written(log_file, position, head):
        return pause
    sound = verdict.sound_position
    is_behind = sound is not None and sound > position
    what = f"intact batches follow from byte {sound}" if is_behind else verdict.detail
    detail = f"a batch reaches beyond the end of the file, but {what}"
    return OversizedBatchEnd(position, Ending.CORRUPT, pause.reason, detail)


def _is_being_written(log_file: LogFile, position: int, head: bytes) -> bool:
    """Whether the writer changed this place meanwhile: truncated it, rewrote it, or finished the batch. Half
    a batch may contain whole ones: those that it carries in its values."""
    now = replace(log_file, size=log_file.file.size())
    if now.size < log_file.size or now.file.read(position, LOG_OVERHEAD) != head:
        return True
    return is_batch_at(now, position, INT64_MAX, INT32_MAX)
