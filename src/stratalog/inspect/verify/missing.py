"""Decides from the evidence of a partition whether records are missing.

What proves a loss, and what does not:

* A segment begins at the log end offset of the moment when it was rolled. So in a log that was never
  compacted, a segment whose end is not the base offset of the next one has lost records, or a segment
  between the two is gone: a finding. Compaction removes batches and whole segments, and a replica of a
  compacted log has the same gaps without having been compacted itself. If anything says so, a gap is a
  note: an entry in the cleaner-offset-checkpoint, a batch with a delete horizon, or offsets that are
  missing *inside* a segment. Truncating or emptying a segment leaves none of these.
* An index entry beyond the end of a segment that has a gap after it proves the loss in any log: the cleaner
  writes new indexes with the new segment.
* The recovery point is what was flushed. A log that ends below it has lost records, whatever happened to
  the process or the machine: a finding. Kafka lowers the checkpoint when it truncates a log.
* The high watermark, the cleaner's checkpoint, the log start, a leader epoch and a producer snapshot may
  lie beyond the end after a power failure, which takes what was not flushed, and after a truncation whose
  checkpoints were not written yet. After an orderly stop none of this can be: then it is a finding, else a
  note.
* Truncating a log inside a batch removes the whole batch and makes the offset the log end. The checkpoints
  then lie beyond the last record, by less than a batch. So a difference smaller than the widest batch is a
  note, unless an index entry or a producer of the snapshot lies beyond the end as well, or the log was shut
  down cleanly: a deleted last segment looks the same then, and is the likelier cause.
* The log-start-offset-checkpoint names a partition only while its log starts inside a segment. If after an
  orderly stop the first segment begins above that offset, the segments before it were taken away. The same
  holds for the first leader epoch: raising the log start raises the start of the epoch.
* After a clean shutdown the recovery point is the log end. If the last batch lies beyond it, after a gap, the
  offset of the batch is wrong, which no CRC covers and nothing after it contradicts: a finding. Without a gap
  something has appended to the log: a note.
* What lies below the log start was deleted on purpose, and is never missing.

Everything here is a pure function of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.inspect.check.report import FileReport, Finding, Severity
from stratalog.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
    V07_SUFFIX,
)
from stratalog.types import TopicPartition

__all__ = ["PartitionEvidence", "SegmentEnd", "find_missing", "find_missing_folders", "has_gap"]

_RESTORE: Final = (
    "restore the partition from a replica or a backup: Kafka and Stratalog continue without the "
    "records and do not report the loss"
)


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """What is known of one segment. ``report`` is None where it could not be read."""

    path: str
    base_offset: int
    report: FileReport | None
    has_horizon: bool = False
    #: How many offsets its widest batch spans.
    widest: int = 0
    #: Evidence of its own indexes, in words, that it went on beyond its end.
    beyond: str | None = None

    @property
    def is_sound(self) -> bool:
        return self.report is not None and self.report.status == "ok"

    @property
    def next_offset(self) -> int:
        return self.base_offset if self.report is None else self.report.next_offset

    @property
    def is_compacted(self) -> bool:
        """Whether offsets are missing inside, or a batch waits for its tombstones to be removed."""
        report = self.report
        if report is None or report.first_offset is None or report.status not in ("ok", "torn"):
            return False
        if self.path.endswith(V07_SUFFIX):
            return False  # offsets are positions there, and nothing was ever compacted
        held = report.records + report.control_records
        return (
            self.has_horizon
            or report.first_offset > self.base_offset
            or held < report.next_offset - report.first_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvidence:
    """All that the files of a partition and the checkpoints of its directory say about its extent."""

    folder: str
    segments: Sequence[SegmentEnd]
    is_clean: bool = False
    #: By the name of the checkpoint file: the offset that it has for this partition.
    checkpoints: Mapping[str, int]
    first_epoch_start: int | None = None
    last_epoch_start: int | None = None
    #: The name and the offset of the newest producer snapshot.
    snapshot: tuple[str, int] | None = None
    #: The largest offset that a producer of that snapshot has written; -1 where there is none.
    last_producer_offset: int = -1
    #: The error of a last batch beyond where a clean shutdown left the log, with a gap before it.
    excess: CorruptionError | None = None

    @property
    def log_start(self) -> int:
        return max(self.checkpoints.get(LOG_START_CHECKPOINT, 0), 0)

    @property
    def is_compacted(self) -> bool:
        return CLEANER_CHECKPOINT in self.checkpoints or any(
            each.is_compacted for each in self.segments
        )


def has_gap(before: SegmentEnd, after: SegmentEnd) -> bool:
    """Whether offsets are missing between two segments, as far as the first can be trusted."""
    return before.is_sound and after.base_offset > before.next_offset


def find_missing(evidence: PartitionEvidence) -> list[Finding]:
    """Find what is missing of a partition; each finding names the file it is to be reported with."""
    return [*_gaps(evidence), *_front(evidence), *_end(evidence)]


def _gaps(evidence: PartitionEvidence) -> list[Finding]:
    found = []
    is_compacted = evidence.is_compacted
    for before, after in pairwise(evidence.segments):
        if before.is_sound and after.base_offset < before.next_offset:
            found.append(_overlap(before, after))
        if not has_gap(before, after) or after.base_offset <= evidence.log_start:
            continue
        first, last = before.next_offset, after.base_offset - 1
        detail = (
            f"offsets {first} to {last} are in no segment: this one ends before {first}, and the next "
            f"begins at {last + 1}"
        )
        if before.beyond is not None:
            found.append(_missing(before.path, f"{detail}; {before.beyond}", first))
        elif is_compacted:
            note = f"{detail}; the log was compacted, which leaves such gaps"
            found.append(Finding.about(before.path, "note", "segment_gap", note, offset=first))
        else:
            found.append(
                _missing(
                    before.path, f"{detail}; there is no sign that the log was compacted", first
                )
            )
    return found


def _overlap(before: SegmentEnd, after: SegmentEnd) -> Finding:
    detail = (
        f"the segment reaches offset {before.next_offset - 1}, and the next one, by its name, begins at "
        f"{after.base_offset}"
    )
    advice = "give the segment the name it had, or restore both from a replica or a backup"
    return Finding.about(
        before.path, "damage", "segment_overlap", detail, advice, offset=after.base_offset
    )


def _missing(path: str, detail: str, offset: int | None) -> Finding:
    return Finding.about(path, "missing", "missing_records", detail, _RESTORE, offset=offset)


def _front(evidence: PartitionEvidence) -> list[Finding]:
    if not evidence.is_clean or not evidence.segments:
        return []
    first = evidence.segments[0]
    for name, start in (
        (LOG_START_CHECKPOINT, evidence.checkpoints.get(LOG_START_CHECKPOINT)),
        (LEADER_EPOCH_CHECKPOINT, evidence.first_epoch_start),
    ):
        if start is not None and 0 <= start < first.base_offset:
            detail = (
                f"offsets {start} to {first.base_offset - 1} are in no segment: the {name} says that the log "
                f"starts at {start}, and the first segment begins at {first.base_offset}"
            )
            return [_missing(first.path, detail, start)]
    return []


def _end(evidence: PartitionEvidence) -> list[Finding]:
    """Compare the end of the log with everything that says how far it went."""
    last = evidence.segments[-1] if evidence.segments else None
    if last is not None and (last.report is None or last.report.status == "damaged"):
        return []  # where it ends cannot be told, and that is reported
    end = 0 if last is None else last.next_offset
    claims = [claim for claim in _claims(evidence) if claim.offset > end]
    if not claims:
        return _excess(evidence, last, end)
    path = evidence.folder if last is None else last.path
    detail = f"the log ends at offset {end}, but {', '.join(claim.text for claim in claims)}"
    strong = [claim.offset for claim in claims if claim.is_strong]
    if not strong:
        why = (
            "without a clean shutdown this proves nothing: a power failure loses unflushed records, and "
            "a follower may have been truncated"
        )
    elif not evidence.is_clean and not _exceeds_a_batch(evidence, last, max(strong) - end):
        why = "truncating a log inside its last batch leaves the same"
    else:
        more = "" if last is None or last.beyond is None else f", and {last.beyond}"
        if not _exceeds_a_batch(evidence, last, max(strong) - end):
            more += "; only a log that was truncated inside its last batch looks the same"
        return [_missing(path, detail + more, end)]
    return [Finding.about(path, "note", "end_below_claims", f"{detail}; {why}", offset=end)]


def _excess(evidence: PartitionEvidence, last: SegmentEnd | None, end: int) -> list[Finding]:
    """Compare the end of the log with the recovery point of a clean shutdown, which is the log end."""
    recovery_point = evidence.checkpoints.get(RECOVERY_CHECKPOINT)
    if last is None or not evidence.is_clean or recovery_point is None or end <= recovery_point:
        return []
    if evidence.excess is not None:
        found = Finding.of_error(last.path, evidence.excess, _RESTORE)
        return [replace(found, offset=recovery_point)]
    if end <= last.base_offset:
        return []  # an empty segment ends where it begins
    detail = (
        f"the log ends at offset {end}, and the {RECOVERY_CHECKPOINT} of the clean shutdown says "
        f"{recovery_point}: something else has appended to the log since"
    )
    return [
        Finding.about(last.path, "note", "end_beyond_recovery_point", detail, offset=recovery_point)
    ]


class _Claim(NamedTuple):
    """Something that says how far the log went. A strong one survives any crash."""

    offset: int
    text: str
    is_strong: bool


def _claims(evidence: PartitionEvidence) -> Iterator[_Claim]:
    is_clean = evidence.is_clean
    for name, offset in evidence.checkpoints.items():
        is_strong = is_clean or name == RECOVERY_CHECKPOINT
        yield _Claim(offset, f"the {name} says {offset}", is_strong)
    start = evidence.last_epoch_start
    if start is not None:
        text = f"the {LEADER_EPOCH_CHECKPOINT} has an epoch that starts at {start}"
        yield _Claim(start, text, is_clean)
    if evidence.snapshot is not None:
        name, offset = evidence.snapshot
        yield _Claim(offset, f"{name} covers the log up to {offset}", is_clean)


def _exceeds_a_batch(evidence: PartitionEvidence, last: SegmentEnd | None, lost: int) -> bool:
    """Whether more is missing than a truncation inside a batch leaves out."""
    if last is None or lost >= max(each.widest for each in evidence.segments):
        return True
    return last.beyond is not None or evidence.last_producer_offset >= last.next_offset


def find_missing_folders(
    root: str,
    named: Mapping[TopicPartition, Sequence[str]],
    *,
    is_clean: bool,
) -> list[tuple[TopicPartition, Finding]]:
    """Report on partitions that files of the root name and that have no folder. Kafka rewrites the recovery
    points in the step that deletes or moves a partition; the others it rewrites until it stops."""
    found = []
    for topic_partition, files in sorted(named.items()):
        sure = is_clean or any(name not in _LATE_CHECKPOINTS for name in files)
        severity: Severity = "missing" if sure else "note"
        verb = "names" if len(files) == 1 else "name"
        detail = f"there is no folder, and {' and '.join(sorted(files))} {verb} it"
        advice = (
            "restore the folder from a replica or a backup; if the partition was deleted or moved on "
            "purpose, take its line out of these files while nothing writes to the directory"
        )
        path = f"{root}/{topic_partition}"
        found.append(
            (
                topic_partition,
                Finding.about(
                    path, severity, "missing_partition", detail, advice if sure else None
                ),
            )
        )
    return found


#: Checkpoints that may still name a partition a while after it was deleted.
_LATE_CHECKPOINTS: Final = frozenset(
    {HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT}
)
