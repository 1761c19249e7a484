"""Where partitions begin and end, asked again and again while a broker writes to them.

A streaming query asks ten times a second. So what was found is kept: the next question reads only what was
appended since, and notices when the segment was cut, or is another.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError
from stratalog.inspect.file.skipped_damage import SkippedDamage
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.file.tail import (
    SegmentTail,
    find_tail,
    tail_behind_damage,
    tail_without_excess,
    walk_tail,
    without_damage,
)
from stratalog.inspect.partition.sources import PartitionSource, with_fresh_listing
from stratalog.records.layout import Reason
from stratalog.storage.files.filesystem import FileStat, FileSystem, OsFileSystem
from stratalog.storage.names import parse_data_name
from stratalog.storage.producers.open_transactions import last_stable_offset
from stratalog.storage.segment.txn_index import AbortedTxn

if TYPE_CHECKING:
    from stratalog.inspect.partition.transactions import FollowedTransactions

__all__ = ["EndsCache", "PartitionEnds", "partition_ends"]


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """A partition holds ``start`` up to but not including ``end``. From ``stable`` on, a transaction is
    still open: None where that was not asked. Where it goes on behind its end with ``damage``, nobody knows
    what follows."""

    start: int
    end: int
    stable: int | None = None
    damage: CorruptionError | None = field(default=None, compare=False)
    #: What a reader that skips damage leaves out at the end.
    skipped: SkippedDamage | None = field(default=None, compare=False)


def partition_ends(
    source: PartitionSource, file_system: FileSystem | None = None, *, stable: bool = False
) -> PartitionEnds:
    """Where a partition begins and ends now. ``stable`` asks for the last stable offset, too: then the
    headers of the whole last segment are read."""
    return EndsCache(file_system).ends_of(source, stable=stable)


class EndsCache:
    """Answers for partitions that it was asked about before, from what was appended since."""

    def __init__(
        self,
        file_system: FileSystem | None = None,
        *,
        skips_damage: bool = False,
        check_crc: bool = True,
    ) -> None:
        self._file_system = file_system or OsFileSystem()
        #: Whether a partition ends after its last intact batch, and not before the first damaged one.
        self._skips_damage = skips_damage
        #: Whether the CRC of the last batch is checked.
        self._check_crc = check_crc
        self._tails: dict[str, SegmentTail] = {}
        #: Files that were checked and found sound, as they were then.
        self._sound: dict[str, FileStat] = {}
        self._transactions: dict[str, FollowedTransactions] = {}
        self._sealed_aborted: dict[
            str, tuple[tuple[str, ...], dict[int, tuple[AbortedTxn, ...]]]
        ] = {}

    def ends_of(self, source: PartitionSource, *, stable: bool = False) -> PartitionEnds:
        """Where a partition begins and ends now. Where its last segment vanished since it was listed, it is
        listed anew."""
        return with_fresh_listing(source, self._file_system, lambda each: self._ends(each, stable))

    def tail(self, source: PartitionSource) -> SegmentTail | None:
        """Where the last segment ends; None where there is none."""
        if not source.segments:
            self._tails.pop(source.folder, None)
            return None
        path = source.segments[-1]
        known = self._tails.get(source.folder)
        found = None
        if known is not None and known.path == path and self._leads_on(known):
            found = walk_tail(known, self._file_system, check_crc=self._check_crc)
        if found is None:
            *_, span = segment_spans(source.segments)
            found = find_tail(span, self._file_system, check_crc=self._check_crc)
        while found.damage is not None and self._skips_damage:
            found = tail_behind_damage(found, self._file_system)
        found = tail_without_excess(found, source.clean_end, self._file_system)
        if self._skips_damage and found.damage is not None:
            stat = self._file_system.stat(found.path)
            found = without_damage(found, found.position if stat is None else stat.size)
        self._tails[source.folder] = found
        return found

    def _leads_on(self, known: SegmentTail) -> bool:
        """Whether something is known by which the file is recognized, or it is as it was."""
        if known.last_header:
            return True
        return known.stat is not None and known.stat == self._file_system.stat(known.path)

    def aborted(self, source: PartitionSource) -> tuple[AbortedTxn, ...]:
        """The aborted transactions whose markers lie in the last segment, from its batches: of what its
        writer keeps in memory, the index may know nothing yet."""
        return () if not _has_transactions(source) else tuple(self._followed(source).aborted)

    def sealed_aborted(self, source: PartitionSource) -> dict[int, tuple[AbortedTxn, ...]]:
        """Those of the other segments, by their base offsets, from their batches, too: where their indexes
        are not there."""
        sealed = source.segments[:-1]
        known = self._sealed_aborted.get(source.folder)
        if known is None or known[0] != sealed:
            from stratalog.inspect.partition.transactions import aborted_in_sealed

            known = sealed, aborted_in_sealed(source, self._file_system)
            self._sealed_aborted[source.folder] = known
        return known[1]

    def _ends(self, source: PartitionSource, stable: bool) -> PartitionEnds:
        unstable = None
        if stable and _has_transactions(source):
            followed = self._followed(source)
            tail: SegmentTail | None = tail_without_excess(
                followed.tail, source.clean_end, self._file_system
            )
            unstable = followed.first_unstable_offset
        else:
            tail = self.tail(source)
        end = source.log_start if tail is None else tail.next_offset
        if source.visible_end is not None:
            end = min(end, source.visible_end)
        start = min(self._start(source), end)
        last_stable = last_stable_offset(unstable, start, end)
        damage = _damage(source, tail)
        if damage is None and last_stable < end:
            damage = self._hidden_damage(source, last_stable)
        skipped = None if tail is None else tail.skipped
        return PartitionEnds(start, end, last_stable if stable else None, damage, skipped)

    def _hidden_damage(self, source: PartitionSource, stable: int) -> CorruptionError | None:
        """What is damaged in the segments that an open transaction hides. Transactions are followed by
        headers and markers alone: a damaged one may look like a transaction that is still open."""
        from stratalog.inspect.check.data_file import verify_file

        for span in segment_spans(source.segments):
            if span.next_offset is not None and span.next_offset <= stable:
                continue
            stat = self._file_system.stat(span.path)
            if self._sound.get(span.path) == stat:
                continue
            is_last = span.path == source.segments[-1]
            report = verify_file(span.path, is_last_segment=is_last, file_system=self._file_system)
            for found in report.findings:
                if found.severity == "damage":
                    return CorruptionError(
                        found.reason,
                        found.detail,
                        position=found.position,
                        path=found.path,
                        advice=found.advice,
                    )
            if stat is not None:
                self._sound[span.path] = stat
        return None

    def _start(self, source: PartitionSource) -> int:
        """As Kafka has it: what is checkpointed, or the first segment's own start if that is higher."""
        for span in segment_spans(source.segments[:1]):
            return max(source.log_start, self._first_offset(span))
        return source.log_start

    def _first_offset(self, span: SegmentSpan) -> int:
        if span.base_offset is not None:
            return span.base_offset
        from stratalog.inspect.file.count import count_file

        return count_file(span.path, file_system=self._file_system).first_offset or 0

    def _followed(self, source: PartitionSource) -> FollowedTransactions:
        known = self._transactions.get(source.folder)
        if known is None or known.tail.path != source.segments[-1] or not known.go_on():
            # Only now: who asks for the ends alone need not wait for all that this brings along.
            from stratalog.inspect.partition.transactions import FollowedTransactions

            known = FollowedTransactions(source, self._file_system)
            known.go_on()
            self._transactions[source.folder] = known
        self._tails[source.folder] = tail_without_excess(
            known.tail, source.clean_end, self._file_system
        )
        return known


def _damage(source: PartitionSource, tail: SegmentTail | None) -> CorruptionError | None:
    """What is wrong at the end, unless it lies behind all that is shown (see ``partition_reader``)."""
    if tail is None or tail.damage is None:
        return None
    is_behind = source.visible_end is not None and tail.next_offset >= source.visible_end
    is_order = tail.damage.reason == Reason.OFFSET_ORDER.name.lower()
    return None if is_behind and not is_order else tail.damage


def _has_transactions(source: PartitionSource) -> bool:
    """Whether there can be any: not in 0.7's files, nor in those that are no segments by their names."""
    name = parse_data_name(os.path.basename(source.segments[-1])) if source.segments else None
    return name is not None and not name.is_v07
