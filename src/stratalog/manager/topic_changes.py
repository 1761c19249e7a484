"""Create, alter and delete topics while their partitions are in use."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from stratalog.errors import UsageError
from stratalog.manager.commits.commits import DirectoryCommits
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.topic_configs import altered_config, check_same_topic
from stratalog.manager.root.topic_file import Topic
from stratalog.manager.write.transactions import TransactionJournal
from stratalog.storage.log_config import LogConfig, check_together
from stratalog.storage.names import INTERNAL_TOPICS, check_topic_type

__all__ = ["TopicChanges"]


class TopicChanges:
    """Changes which topics there are. Threads may share it.

    ``joining`` is held while a transaction joins a partition: a topic is not deleted meanwhile.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        partitions: OpenPartitions,
        journals: Sequence[TransactionJournal],
        commits: Sequence[DirectoryCommits],
        joining: threading.Lock,
    ) -> None:
        self._catalogue = catalogue
        self._partitions = partitions
        self._journals = journals
        self._commits = commits
        self._joining = joining
        #: Held while topics or commits change. Taken before the catalogue's lock, which readers may need.
        self.lock = threading.RLock()

    def create(
        self, topic: str, partitions: int | None, config: LogConfig, *, exist_ok: bool
    ) -> Topic:
        """Create a topic; see ``Logs.create``."""
        check_topic_type(topic)
        if partitions is not None and type(partitions) is not int:
            raise UsageError(f"a topic has at least one partition, not {partitions!r}")
        check_together(self._catalogue.in_effect(config))
        with self.lock:
            known = self._catalogue.topics().get(topic) if exist_ok else None
            if known is None:
                count = self._catalogue.broker.num_partitions if partitions is None else partitions
                return self._catalogue.create(topic, count, config)
            check_same_topic(known, self._catalogue.missing(topic), partitions, config)
            return known

    def add_partitions(self, topic: str, partitions: int) -> Topic:
        """Add partitions to a topic; see ``Logs.add_partitions``."""
        with self.lock:
            return self._catalogue.add_partitions(topic, partitions)

    def alter_configs(self, topic: str, configs: Mapping[str, object | None]) -> Topic:
        """Change configs of a topic, on the disk and in open logs; see ``Logs.alter_configs``."""
        with self.lock:
            config = altered_config(self._catalogue.own_config(topic), configs)
            check_together(self._catalogue.in_effect(config))
            altered = self._catalogue.alter(topic, config)
            self._partitions.reconfigure(topic)
            return altered

    def delete(self, topic: str) -> None:
        """Delete a topic; see ``Logs.delete_topic``."""
        check_topic_type(topic)
        with self.lock:
            delay_ms = self._catalogue.topic(topic).config.file_delete_delay_ms
            # Flushes and checkpoints that get the lock next must find neither the topic nor its logs.
            with self._catalogue.lock:
                try:
                    with self._joining:
                        self._check_deletable(topic)
                        self._catalogue.begin_delete(topic)
                finally:
                    if topic not in self._catalogue.topics():
                        self._partitions.drop(topic)
            try:
                folders = self._catalogue.finish_delete(topic)
            except BaseException as error:
                error.add_note(
                    f"topic {topic!r} is deleted: opening the log directory again removes its files"
                )
                raise
            self._partitions.remove_folders_later(folders, delay_ms)

    def _check_deletable(self, topic: str) -> None:
        if topic in INTERNAL_TOPICS:
            raise UsageError(f"{topic!r} is one of Kafka's internal topics: it cannot be deleted")
        for journal in self._journals:
            for entry in journal.entries:
                if any(each.topic == topic for each in entry.topic_partitions):
                    raise UsageError(
                        f"topic {topic!r} takes part in a transaction that is {entry.state}: end it first"
                    )
        for commits in self._commits:
            if topic in commits.open_topics():
                raise UsageError(
                    f"topic {topic!r} takes part in a commit that is not finished: the next commit, or "
                    "opening the log directory again, finishes it"
                )
