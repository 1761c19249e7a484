"""A batch that reaches beyond the end of its file: a torn tail, or a wrong size that hides what follows it.

A walk sees the same in both. A writer that died, or is at it still, leaves part of a batch and nothing more.
No CRC covers a size: with one bit of it flipped, a batch in the middle of a log seems to be the last one, cut
off, and every sound batch behind it is taken for a part of it. Recovery asks what lies there before it cuts
(``damage``); so does every reader before it calls an end torn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.errors import CorruptionError
from stratalog.records.columns import Pause
from stratalog.records.layout import INT32_MAX, INT64_MAX, LOG_OVERHEAD, Ending, Reason
from stratalog.records.reasons import RESTORE
from stratalog.storage.segment.batch_at import is_batch_at
from stratalog.storage.segment.log_file import LogFile

__all__ = ["HidingPause", "judged"]


@dataclass(frozen=True, slots=True)
class HidingPause(Pause):
    """Damage that looks like a torn tail: the reason is the same, what to do about it is not."""

    def error(self) -> CorruptionError:
        error = Pause.error(self)
        return CorruptionError(error.reason, error.detail, position=error.position, advice=RESTORE)


def judged(log_file: LogFile, pause: Pause) -> Pause:
    """How a file ends at which a walk came to its end: CORRUPT where a batch that seems cut off hides sound
    ones, else as the walk has it. Everything behind the place is searched: ask once."""
    if pause.ending != Ending.INCOMPLETE or pause.reason != Reason.SHORT_TAIL or log_file.is_v07:
        return pause
    # Only now: who reads a log that ends as it should need not wait for it.
    from stratalog.storage.segment.tail_verdict import judge_tail

    file, position = log_file.file, pause.position
    head = file.read(position, LOG_OVERHEAD)
    size = min(log_file.size, file.size())
    verdict = judge_tail(file, pause, size, log_file.base_offset or 0)
    if not verdict.may_lose or _is_being_written(log_file, position, head):
        return pause
    sound = verdict.sound_position
    is_behind = sound is not None and sound > position
    what = f"sound ones follow from byte {sound} on" if is_behind else verdict.detail
    detail = f"a batch reaches beyond the end of the file, but {what}"
    return HidingPause(position, Ending.CORRUPT, pause.reason, detail)


def _is_being_written(log_file: LogFile, position: int, head: bytes) -> bool:
    """Whether the log's owner was at this place meanwhile: he cut it, began it anew, or has finished the
    batch. In half a batch there may be whole ones: those that it carries in its values."""
    now = replace(log_file, size=log_file.file.size())
    if now.size < log_file.size or now.file.read(position, LOG_OVERHEAD) != head:
        return True
    return is_batch_at(now, position, INT64_MAX, INT32_MAX)
