"""What a read leaves out where a segment is damaged, and where it can go on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stratalog.errors import CorruptionError, UsageError
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records.columns import WalkEnd
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import FileEnd

__all__ = [
    "OnDamagedBatch",
    "Resumption",
    "SkippedDamage",
    "find_resumption",
    "on_damage_of",
    "refuse_committed_skip",
    "with_advice",
]


class OnDamagedBatch(StrEnum):
    """What a read does at a damaged batch."""

    FAIL = "fail"
    SKIP = "skip"  # goes on at the next intact batch


def on_damage_of(value: object) -> OnDamagedBatch:
    """Return the choice of this name. Raise UsageError if there is none."""
    try:
        return OnDamagedBatch(value)  # type: ignore[arg-type]
    except ValueError:
        names = " or ".join(each.value for each in OnDamagedBatch)
        raise UsageError(f"on_damage is {names}, not {value!r}") from None


def refuse_committed_skip(*, is_committed: bool, on_damage: OnDamagedBatch) -> None:
    """UsageError where damage is to be skipped in a read of what is committed: the damaged batch may be the
    marker that ends a transaction, and then nothing tells whether its records were committed."""
    if is_committed and on_damage is OnDamagedBatch.SKIP:
        raise UsageError(
            "damage cannot be skipped in a read_committed read: a damaged batch may be the end of a "
            "transaction; read with read_uncommitted, or up to the damage"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedDamage:
    """Bytes of one file that cannot be read, and the offsets that may be among them: from ``start_offset``
    up to but not including ``resume_offset``, where the next intact batch or segment begins. None: nothing
    intact follows."""

    path: str
    position: int
    size_bytes: int
    start_offset: int
    resume_offset: int | None
    reason: str
    detail: str

    def __str__(self) -> str:
        where = f"{self.path} at byte {self.position}: {self.detail} ({self.reason})"
        lost = f"{self.size_bytes} bytes left out, from offset {self.start_offset} on"
        if self.resume_offset is None:
            return f"{where}; {lost}; nothing intact follows"
        return f"{where}; {lost}; reading can resume at offset {self.resume_offset}"


@dataclass(frozen=True, slots=True)
class Resumption:
    """What is left out, and from which byte of the same file on reading goes on; None: not in this file."""

    skipped: SkippedDamage
    position: int | None


def find_resumption(
    log_file: LogFile, span: SegmentSpan, pause: WalkEnd, expected_offset: int
) -> Resumption:
    """Find where to resume after the damage at which a walk over a segment stopped. If reading resumes at the
    offset that was expected, the batches that are left out are below it: their offsets are said then."""
    error = FileEnd(log_file.path, log_file.size, pause).error()
    expected = max(expected_offset, 0)
    start, found = expected, None
    if not log_file.is_v07:
        # Imported here, because a sound log does not need it.
        from stratalog.storage.segment.next_intact import first_offset_at, next_intact

        found = next_intact(
            log_file.file,
            pause.position,
            log_file.size,
            base_offset=log_file.base_offset or 0,
            expected_offset=expected,
            below=span.next_offset,
        )
    resume = span.next_offset if found is None else found.first_offset
    if resume is not None and resume <= expected and not log_file.is_v07:
        own = first_offset_at(log_file.file, pause.position, log_file.size)
        start = expected if own is None else min(expected, max(own, log_file.base_offset or 0))
    end = log_file.size if found is None else found.position
    skipped = SkippedDamage(
        path=log_file.path,
        position=pause.position,
        size_bytes=end - pause.position,
        start_offset=start,
        resume_offset=resume,
        reason=error.reason,
        detail=error.detail,
    )
    return Resumption(skipped, None if found is None else found.position)


def with_advice(error: CorruptionError, advice: str) -> CorruptionError:
    """The same error with other advice."""
    return type(error)(
        error.reason, error.detail, position=error.position, path=error.path, advice=advice
    )
