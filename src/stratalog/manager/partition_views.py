"""What readers see of partitions now: in open logs of this process, or in files of another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from stratalog.errors import CorruptionError, UnknownPartitionError
from stratalog.manager.commits.commits import DirectoryCommits
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.read.followed_topic import FollowedTopic
from stratalog.manager.read.reading import PartitionView, StoredRecord
from stratalog.manager.read.tailing import (
    FollowedFolder,
    LogMoves,
    OwnLog,
    Polling,
    tail_records,
)
from stratalog.manager.read.visibility import WatchedJournals, look_past_commits
from stratalog.manager.root.catalogue import Catalogue
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.clean_end import CleanEnds
from stratalog.storage.views.log_view import Isolation
from stratalog.storage.views.read_only import folder_trace, open_view
from stratalog.types import TopicPartition

__all__ = ["PartitionViews"]


class PartitionViews:
    """Looks at partitions for readers. A look shows all of a commit into several partitions, or nothing."""

    def __init__(
        self,
        catalogue: Catalogue,
        partitions: OpenPartitions,
        commits: Sequence[DirectoryCommits],
        file_system: FileSystem,
        *,
        read_only: bool,
    ) -> None:
        self._catalogue = catalogue
        self._partitions = partitions
        self._commits = tuple(commits)
        self._file_system = file_system
        self._read_only = read_only
        roots = [each.root for each in commits]
        self._path = roots[0]
        self._journals = WatchedJournals(file_system, roots)

    @property
    def damage(self) -> Iterable[CorruptionError]:
        """Journals of commits that could not be read."""
        return self._journals.damage.values()

    @property
    def _is_another_writing(self) -> bool:
        """Whether the files are the only source: these logs are read-only, or inherited by a fork."""
        return self._read_only or self._partitions.is_inherited

    def refresh(self) -> None:
        """Find the topics and partitions that another process has created or deleted."""
        if self._is_another_writing and not self._partitions.is_closed:
            self._catalogue.refresh()

    def look(self, topic_partitions: Sequence[TopicPartition]) -> list[PartitionView]:
        """Return what a reader sees of partitions now."""
        if self._is_another_writing:
            return look_past_commits(
                self._journals.states, lambda: self._open_folders(topic_partitions), self._path
            )
        return self._look_at_logs({each: self._partitions.get(each) for each in topic_partitions})

    def _look_at_logs(self, logs: Mapping[TopicPartition, PartitionLog]) -> list[PartitionView]:
        return look_past_commits(
            self._states,
            lambda: [PartitionView(each, log.view, log=log) for each, log in logs.items()],
            self._path,
        )

    def _states(self) -> list[JournalState]:
        return [each.state for each in self._commits]

    def _look_at(self, topic_partition: TopicPartition) -> PartitionView:
        return self.look([topic_partition])[0]

    def _open_folders(self, topic_partitions: Sequence[TopicPartition]) -> list[PartitionView]:
        clean_ends = CleanEnds(self._file_system)
        return [self._open_folder(each, clean_ends) for each in topic_partitions]

    def _open_folder(self, topic_partition: TopicPartition, clean_ends: CleanEnds) -> PartitionView:
        directory = self._catalogue.directory(topic_partition)
        directory.log_starts.read()  # the writer may have raised it
        found = open_view(
            directory.folder(topic_partition),
            self._file_system,
            log_start=directory.log_starts.of(topic_partition),
            clean_end=clean_ends.of(directory.root, topic_partition),
            config=self._catalogue.config(topic_partition.topic),
        )
        topic_id = self._catalogue.topic(topic_partition.topic).topic_id
        again = partial(self._look_again, topic_partition, topic_id)
        return PartitionView(topic_partition, *found, again=again)

    def _look_again(self, topic_partition: TopicPartition, topic_id: bytes | None) -> PartitionView:
        """Look at a partition whose files were replaced while they were read; UnknownPartitionError if it
        is not the same topic's any more."""
        self._check_same(topic_partition, topic_id)
        found = self._look_at(topic_partition)
        self._check_same(topic_partition, topic_id)
        return found

    def _check_same(self, topic_partition: TopicPartition, topic_id: bytes | None) -> None:
        """Raise UnknownPartitionError if a partition does not exist any more, or belongs to another topic of
        the same name. A topic that has no id is the same as any."""
        self._catalogue.refresh()
        self._catalogue.directory(topic_partition)
        found = None if topic_id is None else self._topic_id(topic_partition.topic)
        if found is not None and found != topic_id:
            raise UnknownPartitionError(
                f"topic {topic_partition.topic!r} was deleted, and another one created: read it again"
            )

    def _topic_id(self, topic: str) -> bytes | None:
        try:
            return self._catalogue.topic_id(topic)
        except CorruptionError:  # of partition.metadata, which is not needed to read
            return None

    def tail(
        self,
        topic_partitions: Sequence[TopicPartition],
        start: int | None,
        isolation: Isolation,
        timeout_s: float | None,
    ) -> Iterator[StoredRecord]:
        """Yield the records of partitions as they arrive; see ``Logs.tail``."""
        if self._is_another_writing:
            followed = {each: self._followed(each) for each in topic_partitions}
            return tail_records(followed, Polling(), start, isolation, timeout_s)
        logs = {each: self._partitions.get(each) for each in topic_partitions}
        own = {each: self._own(each, log) for each, log in logs.items()}
        return tail_records(own, LogMoves(logs.values()), start, isolation, timeout_s)

    def _own(self, topic_partition: TopicPartition, log: PartitionLog) -> OwnLog:
        # The log, not the partition: a topic of the same name may have been created since.
        return OwnLog(log, lambda: self._look_at_logs({topic_partition: log})[0])

    def _followed(self, topic_partition: TopicPartition) -> FollowedTopic:
        folder = self._catalogue.directory(topic_partition).folder(topic_partition)
        followed = FollowedFolder(
            partial(self._look_at, topic_partition),
            lambda: (folder_trace(folder, self._file_system), self._journals.stamp()),
            lambda: self._partitions.is_closed,
        )
        topic_id = self._topic_id(topic_partition.topic)
        return FollowedTopic(followed, partial(self._check_same, topic_partition, topic_id))
