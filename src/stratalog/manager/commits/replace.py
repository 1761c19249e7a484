"""Put staged segments in the place of live ones, group after group: when decided, and after a crash.

Every swap is atomic and both sides of it are correct. So nothing is hidden from readers meanwhile, and a
group that others have changed can be left as it is. Groups of a partition are replaced from the lowest
offsets on, and none after one that could not be: a later one may leave out a tombstone whose older records
are in that one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError
from stratalog.manager.commits.live_groups import find_old, has_new, is_below_start
from stratalog.manager.commits.threads import side_by_side
from stratalog.storage.commits.records import Intent, ReplacedPartition
from stratalog.storage.commits.segment_groups import PartitionGroups, SegmentGroup, StagedSegment
from stratalog.storage.commits.staged_segment import check_staged_files, check_staged_group
from stratalog.storage.files.file_copy import copy_range
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import SEGMENT_KINDS, FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.segment import Segment
from stratalog.types import TopicPartition

__all__ = ["FoundGroup", "GroupSwaps"]

_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)


class FoundGroup(NamedTuple):
    """A group whose old segments are live, as they were planned for."""

    group: SegmentGroup
    segments: Sequence[Segment]


class GroupSwaps:
    """Replaces groups of segments in the logs of one log directory."""

    def __init__(
        self,
        root: str,
        file_system: FileSystem,
        log_of: Callable[[TopicPartition], PartitionLog],
        *,
        on_replaced: Callable[[PartitionLog], None],
        store_cleaned: Callable[[TopicPartition, PartitionLog, int], None],
    ) -> None:
        """``on_replaced`` is called with each log whose old files are to be removed later;
        ``store_cleaned`` writes the cleaner checkpoint of a partition, which has that log."""
        self._root = root
        self._file_system = file_system
        self._log_of = log_of
        self._on_replaced = on_replaced
        self._store_cleaned = store_cleaned

    # Before the decision.

    def check(
        self, partitions: Iterable[PartitionGroups], threads: int
    ) -> dict[TopicPartition, list[FoundGroup]]:
        """Return the groups with the live segments that they replace. Raise StorageError if these are not as
        they were planned for, CorruptionError if a staged segment is damaged."""
        listed = [
            (self._log_of(each.topic_partition), each.topic_partition, group)
            for each in partitions
            for group in each.groups
        ]

        def check_one(each: tuple[PartitionLog, TopicPartition, SegmentGroup]) -> FoundGroup:
            log, _, group = each
            segments = find_old(log, group)
            if segments is None:
                raise StorageError(
                    f"the segments from offset {group.start} up to {group.end} have changed since the "
                    "rewrite was planned: nothing was replaced; run it again",
                    path=log.folder,
                )
            check_staged_group(self._file_system, self._root, group)
            return FoundGroup(group, segments)

        found: dict[TopicPartition, list[FoundGroup]] = {}
        for (_, topic_partition, _), each in zip(
            listed, side_by_side(check_one, listed, threads), strict=True
        ):
            found.setdefault(topic_partition, []).append(each)
        return found

    # After it.

    def carry_out(
        self, intent: Intent, found: dict[TopicPartition, list[FoundGroup]], reports: list[str]
    ) -> tuple[ReplacedPartition, ...]:
        """Replace groups that were just checked; return how many of each partition."""
        return tuple(
            self._swap_all(each, found.get(each.topic_partition, []), reports)
            for each in intent.replaced
        )

    def _swap_all(
        self, partition: PartitionGroups, found: Sequence[FoundGroup], reports: list[str]
    ) -> ReplacedPartition:
        def swap(log: PartitionLog, number: int) -> bool:
            return self._swap(log, found[number])

        return self._replace(partition, self._log_of(partition.topic_partition), swap, reports)

    def replay(self, intent: Intent, reports: list[str]) -> tuple[ReplacedPartition, ...]:
        """Replace what an interrupted commit has not replaced yet; return how many groups of each partition
        are replaced now. Nothing is forced: a group that others have changed is left as it is."""
        return tuple(self._replay_partition(each, reports) for each in intent.replaced)

    def _replay_partition(
        self, partition: PartitionGroups, reports: list[str]
    ) -> ReplacedPartition:
        try:
            log = self._log_of(partition.topic_partition)
        except (UnknownPartitionError, CorruptionError) as error:
            reports.append(f"{partition.topic_partition}: nothing is replaced: {error}")
            return ReplacedPartition(partition.topic_partition, len(partition.groups), 0)

        def settle(log: PartitionLog, number: int) -> bool:
            return self._replay_group(log, partition.groups[number], reports)

        with log.rewriting():
            return self._replace(partition, log, settle, reports)

    def _replay_group(self, log: PartitionLog, group: SegmentGroup, reports: list[str]) -> bool:
        if has_new(log, group) or is_below_start(log, group):
            return True
        segments = find_old(log, group)
        if segments is None:
            return False
        try:
            for segment in group.new:
                check_staged_files(self._file_system, self._root, segment)
        except CorruptionError as error:
            reports.append(f"{log.folder}: a staged segment cannot be used: {error}")
            return False
        return self._swap(log, FoundGroup(group, segments))

    def _replace(
        self,
        partition: PartitionGroups,
        log: PartitionLog,
        settle: Callable[[PartitionLog, int], bool],
        reports: list[str],
    ) -> ReplacedPartition:
        done = 0
        while done < len(partition.groups) and settle(log, done):
            done += 1
        if done < len(partition.groups):
            group = partition.groups[done]
            reports.append(
                f"{partition.topic_partition}: others have changed the segments from offset "
                f"{group.start} on: these and those after them are not replaced, and stay as they are"
            )
        elif partition.cleaned_to is not None and partition.cleaned_to <= log.log_end:
            self._store_cleaned(partition.topic_partition, log, partition.cleaned_to)
        self._on_replaced(log)
        return ReplacedPartition(partition.topic_partition, len(partition.groups), done)

    def _swap(self, log: PartitionLog, found: FoundGroup) -> bool:
        """Swap one group. Return False, and change nothing, if the log lost the old segments meanwhile."""
        group = found.group
        is_replaced = False
        try:
            for segment in group.new:
                self._place(log, segment, group.modified_ms)
            is_replaced = log.replace_segments(
                found.segments, [each.base_offset for each in group.new], records=group.records
            )
        finally:
            if not is_replaced:
                with suppress(StorageError):  # the next load removes them
                    self._remove_cleaned(log, group)
        return is_replaced

    def _place(self, log: PartitionLog, segment: StagedSegment, modified_ms: int) -> None:
        """Give the files of a staged segment their ``.cleaned`` names. The pieces stay, in case that the swap
        does not happen. They have the time at which they were staged until here: by it, pieces that were
        abandoned are told apart."""
        for kind in SEGMENT_KINDS:
            cleaned = _cleaned_path(log, segment, kind)
            self._file_system.unlink(cleaned)
            if kind in segment.files:
                staged = os.path.join(self._root, segment.file_name(kind))
                self._link(staged, cleaned, segment.files[kind].size_bytes)
                self._file_system.set_modified(cleaned, modified_ms)

    def _link(self, path: str, link: str, size_bytes: int) -> None:
        try:
            self._file_system.link(path, link)
        except StorageError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy(path, link, size_bytes)

    def _copy(self, path: str, copy: str, size_bytes: int) -> None:
        source = self._file_system.open_readable(path)
        try:
            target = self._file_system.open_writable(copy, create=True)
            try:
                copy_range(source, 0, size_bytes, target)
            finally:
                target.close()
        finally:
            source.close()

    def _remove_cleaned(self, log: PartitionLog, group: SegmentGroup) -> None:
        for segment in group.new:
            for kind in SEGMENT_KINDS:
                self._file_system.unlink(_cleaned_path(log, segment, kind))


def _cleaned_path(log: PartitionLog, segment: StagedSegment, kind: FileKind) -> str:
    return os.path.join(log.folder, segment_file_name(segment.base_offset, kind, Stage.CLEANED))
