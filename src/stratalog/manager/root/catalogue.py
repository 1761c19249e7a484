"""The topics and partitions that exist, and the log directory that holds each partition.

The folders say what there is. Ids and configs are in a file of each root (``topic_file``), which also says
what is being made: a topic comes into being whole, also when its making is interrupted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError, UsageError
from stratalog.manager.root.deletion import Deletions, Verdict
from stratalog.manager.root.directory import LogDirectory
from stratalog.manager.root.namesakes import find_namesakes, namesake_error
from stratalog.manager.root.topic_file import Topic, TopicEntry, TopicFile
from stratalog.storage.broker_config import BrokerConfig
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.kafka_uuid import format_uuid
from stratalog.storage.formats.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    new_topic_id,
)
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import (
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    check_own_topic,
    check_topic_type,
    partition_dir_name,
)
from stratalog.types import TopicPartition

__all__ = ["Catalogue", "check_partition_count", "choose_directories"]

_NAME_SIZE_MAX: Final = 255  # of a folder, on every common file system
_LISTED_MAX: Final = 10
#: How many partitions one call creates at most, as in Kafka: a mistyped number must not fill the disk with
#: folders for minutes.
_CREATED_MAX: Final = 10_000
_TRIES: Final = 16

#: Partitions that are being created, by the ids of their directories.
Plan = Mapping[str, tuple[int, ...]]


def check_partition_count(partitions: int) -> int:
    """Return the number of partitions of a new topic; UsageError if a topic cannot have so many."""
    if type(partitions) is not int or partitions < 1:
        raise UsageError(f"a topic has at least one partition, not {partitions!r}")
    if partitions > _CREATED_MAX:
        raise UsageError(
            f"{partitions} partitions are too many to create at once: create up to {_CREATED_MAX}, as "
            "Kafka allows, and add the rest with add_partitions"
        )
    return partitions


def choose_directories(counts: Sequence[int], partitions: int) -> list[int]:
    """Return a directory for each new partition: the one with fewest, the first of those."""
    left = list(counts)
    chosen = []
    for _ in range(partitions):
        number = left.index(min(left))
        left[number] += 1
        chosen.append(number)
    return chosen


class Catalogue:
    """The topics of all directories that are open together."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        file_system: FileSystem,
        broker: BrokerConfig,
        *,
        read_only: bool,
    ) -> None:
        self._directories = directories
        self._file_system = file_system
        #: Defaults for all topics. They are not stored: a topic's file has only its own configs.
        self.broker = broker
        #: Held while the set of partitions, the set of open logs or the checkpoints change.
        self.lock = threading.RLock()
        self._files = [TopicFile(file_system, each.root) for each in directories]
        #: Files that could not be read. Only read-only logs continue without them.
        self._unreadable = self._read_files(must=not read_only)
        self._namesakes: dict[str, dict[int, bytes]] = {}
        self._deletions = Deletions(directories, self._files, file_system)
        self._directory_of: dict[TopicPartition, int] = {}
        self._partitions: dict[str, tuple[int, ...]] = {}
        self._missing: dict[str, tuple[int, ...]] = {}  # asked for by every append
        self._show(self._list(), is_reader=read_only)
        if read_only:
            self.refresh()  # a writer may have been at work between the files and the folders

    def _read_files(self, *, must: bool) -> list[CorruptionError]:
        damage = []
        for file in self._files:
            try:
                file.read()
            except CorruptionError as error:
                if must:
                    raise
                damage.append(error)
        return damage

    @property
    def damage(self) -> list[CorruptionError]:
        """Files that could not be read, and topics that are not shown because they are not one topic."""
        roots = [each.root for each in self._directories]
        found = sorted(self._namesakes.items())
        return [*self._unreadable, *(namesake_error(name, ids, roots) for name, ids in found)]

    def refresh(self) -> None:
        """Find what another process has created, altered or deleted. For read-only logs."""
        listing = self._list()
        for _ in range(_TRIES):
            if listing == self._listing and not any(file.has_changed() for file in self._files):
                return
            # A topic is written down before its folders are made, and its deletion before they are renamed.
            # If the folders are the same after the files were read, the files explain them.
            self._unreadable = self._read_files(must=False)
            before, listing = listing, self._list()
            if listing == before:
                self._show(listing, is_reader=True)
        raise StorageError(
            "topics change faster than the log directory can be listed: try again",
            path=self._directories[0].root,
        )

    def _list(self) -> list[tuple[TopicPartition, int]]:
        """Return every partition that has a folder, with the number of its directory."""
        return [
            (each, number)
            for number, directory in enumerate(self._directories)
            for each in directory.partitions()
        ]

    def _show(self, listing: list[tuple[TopicPartition, int]], *, is_reader: bool = False) -> None:
        """Show the partitions that have folders, but for topics that are deleted, or are not one topic; to a
        reader, also not partitions that are being created, before all of them have folders."""
        self._listing = listing
        hidden = self._deletions.hidden(listing)
        self._namesakes = find_namesakes([file.entries for file in self._files], listing, hidden)
        unfinished = self._unfinished(listing) if is_reader else ()
        directory_of: dict[TopicPartition, int] = {}
        for each, number in listing:
            if (each.topic, number) not in hidden and (each, number) not in unfinished:
                self._add(directory_of, [each], number)
        if self._namesakes:
            shown = directory_of.items()
            directory_of = {each: n for each, n in shown if each.topic not in self._namesakes}
        self._set(directory_of, {each.topic for each in (*directory_of, *self._directory_of)})

    def _unfinished(
        self, listing: Collection[tuple[TopicPartition, int]]
    ) -> set[tuple[TopicPartition, int]]:
        """Return the partitions of creations of which not all have folders yet."""
        numbers = self._numbers()
        there = set(listing)
        found: set[tuple[TopicPartition, int]] = set()
        for file in self._files:
            for name, entry in file.entries.items():
                planned = {
                    (TopicPartition(name, partition), numbers[directory_id])
                    for directory_id, partitions in (entry.plan or {}).items()
                    if directory_id in numbers
                    for partition in partitions
                }
                if not planned <= there:
                    found |= planned
        return found

    def _numbers(self) -> dict[str, int]:
        """Return the open directories by their ids."""
        return {
            format_uuid(each.directory_id): number
            for number, each in enumerate(self._directories)
            if each.directory_id is not None
        }

    def _take(self, topic_partitions: Sequence[TopicPartition], number: int) -> None:
        directory_of = dict(self._directory_of)
        self._add(directory_of, topic_partitions, number)
        self._set(directory_of, {topic_partition.topic for topic_partition in topic_partitions})

    def _add(
        self,
        directory_of: dict[TopicPartition, int],
        topic_partitions: Iterable[TopicPartition],
        number: int,
    ) -> None:
        for topic_partition in topic_partitions:
            if topic_partition in directory_of:
                first = self._directories[directory_of[topic_partition]].root
                raise UsageError(
                    f"{topic_partition} is in two log directories: {first} and "
                    f"{self._directories[number].root}"
                )
            directory_of[topic_partition] = number

    def _set(self, directory_of: dict[TopicPartition, int], changed: set[str]) -> None:
        # Replaced, not changed: others may be reading them.
        listed: dict[str, list[int]] = {name: [] for name in changed}
        for topic_partition in directory_of:
            if topic_partition.topic in changed:
                listed[topic_partition.topic].append(topic_partition.partition)
        partitions = {**self._partitions, **{name: tuple(sorted(listed[name])) for name in listed}}
        self._directory_of = directory_of
        self._partitions = {name: each for name, each in partitions.items() if each}
        self._missing.clear()

    # What exists.

    @property
    def directory_of(self) -> Mapping[TopicPartition, int]:
        """Every partition with the number of its directory."""
        return self._directory_of

    @property
    def roots(self) -> tuple[str, ...]:
        """The log directories."""
        return tuple(each.root for each in self._directories)

    def directory(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the directory of a partition; UnknownPartitionError if there is no such partition."""
        check_topic_type(topic_partition.topic)
        number = self._directory_of.get(topic_partition)
        if number is None:
            there = self.partitions(topic_partition.topic)  # raises if the topic is unknown
            raise UnknownPartitionError(
                f"topic {topic_partition.topic!r} has no partition {topic_partition.partition}: there are "
                f"{_listed(there)}"
            )
        return self._directories[number]

    def partitions(self, name: str) -> tuple[int, ...]:
        """Return the partitions of a topic that have folders in the open directories."""
        check_topic_type(name)
        found = self._partitions.get(name)
        if found is None:
            there = sorted(self._partitions)
            raise UnknownPartitionError(
                f"no topic {name!r}: "
                + (f"there are {_listed(there)}" if there else "there is none yet")
            )
        return found

    def missing(self, name: str) -> tuple[int, ...]:
        """Return the partitions that the topic must have and that are not here: their directory is not
        open, or they are lost."""
        there = self.partitions(name)
        found = self._missing.get(name)
        if found is None:
            known = set(range(there[-1] + 1))
            for file in self._files:
                entry = file.entries.get(name)
                if entry is not None:
                    known |= entry.known_partitions()
            found = self._missing[name] = tuple(sorted(known.difference(there)))
        return found

    def check_whole(self, name: str, doing: str) -> None:
        """Raise UsageError if partitions of a topic may be in directories that are not open. A partition that
        an open directory lists, and whose folder was taken away, is lost: no other directory has it."""
        elsewhere = set(self.missing(name))
        for file in self._files:
            entry = file.entries.get(name)
            if entry is not None:
                elsewhere.difference_update(entry.topic.partitions)
        if elsewhere:
            raise UsageError(
                f"topic {name!r} cannot be {doing}: the open log directories do not have all of it, and lack "
                f"partitions {_listed(sorted(elsewhere))}; open all its log directories together"
            )

    def topics(self) -> dict[str, Topic]:
        """Return every topic by its name, with the configs that are in effect."""
        # One moment: another thread may delete a topic meanwhile.
        there = sorted(self._partitions.items())
        return {name: self._topic(name, partitions) for name, partitions in there}

    def topic(self, name: str) -> Topic:
        """Return a topic with the configs that are in effect; UnknownPartitionError if there is none."""
        return self._topic(name, self.partitions(name))

    def _topic(self, name: str, partitions: tuple[int, ...]) -> Topic:
        known = self._entry(name) or Topic(name)
        return replace(known, partitions=partitions, config=self.in_effect(known.config))

    def _stored(self, name: str) -> Topic:
        """Return a topic with the configs that are its own."""
        partitions = self.partitions(name)
        return replace(self._entry(name) or Topic(name), partitions=partitions)

    def _entry(self, name: str) -> Topic | None:
        for file in self._files:
            entry = file.entries.get(name)
            if entry is not None:
                return entry.topic
        return None

    def config(self, name: str) -> LogConfig:
        """Return the configs that are in effect for a topic: its own, and the broker's defaults."""
        known = self._entry(name)
        return self.in_effect(LogConfig() if known is None else known.config)

    def own_config(self, name: str) -> LogConfig:
        """Return the configs that a topic has of its own; UnknownPartitionError if there is none."""
        return self._stored(name).config

    def has_configs(self, name: str) -> bool:
        """Return whether the configs of a topic are stored here. Those of a topic that Kafka created are in
        Kafka's metadata, and not known."""
        return self._entry(name) is not None

    def in_effect(self, own: LogConfig) -> LogConfig:
        """Return the configs that are in effect for a topic with these of its own."""
        return self.broker.log_config(own)

    def topic_id(self, name: str) -> bytes | None:
        """Return the topic's id, from our file or from its partitions'; None if it has none."""
        known = self._stored(name)
        if known.topic_id is not None:
            return known.topic_id
        for partition in known.partitions:
            topic_partition = TopicPartition(name, partition)
            path = os.path.join(
                self.directory(topic_partition).folder(topic_partition), PARTITION_METADATA
            )
            data = read_small_file(self._file_system, path)
            if data is not None:
                try:
                    return decode_partition_metadata(data).topic_id
                except CorruptionError as error:
                    raise error.located(path=path) from None
        return None

    # Creating.

    def create(
        self,
        name: str,
        partitions: int,
        config: LogConfig,
        *,
        topic_id: bytes | None = None,
        directory: LogDirectory | None = None,
    ) -> Topic:
        """Create a topic. A commit gives the id that it promised, and the directory that it writes to."""
        with self.lock:
            self.check_new(name, partitions)
            if name in self._deletions.names():
                self._deletions.settle(name, self._list())
                self._show(self._list())
                self.check_new(name, partitions)
            for file in self._files:
                file.remove(name)  # of a topic whose folders were taken away
            topic = Topic(name, topic_id or new_topic_id(), (), config)
            self._make(topic, range(partitions), directory)
            return self.topic(name)

    def check_new(self, name: str, partitions: int) -> None:
        """Raise UsageError if a topic of this name and size cannot be created."""
        check_own_topic(name)
        check_partition_count(partitions)
        if name in self._partitions:
            raise UsageError(f"topic {name!r} is there already")
        if name in self._deletions.names():
            verdict = self._deletions.verdict(name, self._list())
            if verdict is Verdict.PENDING:
                raise UsageError(
                    f"topic {name!r} is being deleted, and one of its log directories is not open: open "
                    "all of them together to finish the deletion"
                )
            if verdict is Verdict.UNDECIDED:
                # Its logs were released as they were: only opening the directory recovers them.
                raise UsageError(
                    f"the deletion of topic {name!r} failed in the middle: open the log directory again to "
                    "take it back"
                )
        else:
            self._check_absent(name)
        longest = partition_dir_name(TopicPartition(name, partitions - 1))
        if len(longest) > _NAME_SIZE_MAX:
            raise UsageError(f"the folder {longest!r} has a name of {len(longest)} characters")

    def _check_absent(self, name: str, partitions: Collection[int] | None = None) -> None:
        """Raise UsageError if a directory has anything in the place of a partition of a topic; of any, or of
        those given. What is said of it in other files is still needed then."""
        for directory in self._directories:
            for topic_partition in directory.occupied(name):
                if partitions is None or topic_partition.partition in partitions:
                    raise UsageError(
                        f"{topic_partition} cannot be created: {directory.folder(topic_partition)} exists, "
                        "and is not an open partition. If it is a folder, open the log directory again; "
                        "if it is a file or a symbolic link, move it out of the log directory"
                    )

    def add_partitions(self, name: str, partitions: int) -> Topic:
        if type(partitions) is not int:
            raise UsageError(f"a number of partitions is a whole number, not {partitions!r}")
        with self.lock:
            known = self._stored(name)
            there = {*known.partitions, *self.missing(name)}
            if partitions - len(there) > _CREATED_MAX:
                raise UsageError(
                    f"{partitions - len(there)} partitions are too many to create at once: add up to "
                    f"{_CREATED_MAX}, as Kafka allows, and call add_partitions again"
                )
            new = [each for each in range(partitions) if each not in there]
            if new:
                self._check_absent(name, set(new))
                topic_id = self.topic_id(name) or new_topic_id()
                self._make(Topic(name, topic_id, (), known.config), new)
            return self.topic(name)

    def _make(
        self, topic: Topic, partitions: Sequence[int], directory: LogDirectory | None = None
    ) -> None:
        longest = partition_dir_name(TopicPartition(topic.name, partitions[-1]))
        if len(longest) > _NAME_SIZE_MAX:
            raise UsageError(f"the folder {longest!r} has a name of {len(longest)} characters")
        if directory is None:
            counts = [0] * len(self._directories)
            for number in self._directory_of.values():
                counts[number] += 1
            numbers = choose_directories(counts, len(partitions))
        else:
            numbers = [self._directories.index(directory)] * len(partitions)
        chosen = dict(zip(partitions, numbers, strict=True))
        before = [file.entries.get(topic.name) for file in self._files]
        there = {*self._partitions.get(topic.name, ()), *partitions}
        for each in before:
            there |= each.known_partitions() if each is not None else set()
        total = max(there) + 1
        self._forget(TopicPartition(topic.name, each) for each in partitions)
        try:
            # The plan comes first: after a crash from here on, the next opening completes it.
            plan = self._plan(chosen)
            for number in sorted(set(chosen.values())):
                merged = _merged(_plan_of(before[number]), plan)
                self._note(number, topic, _of(chosen, number), merged, total)
            for number in sorted(set(chosen.values())):
                self._make_folders(number, topic, _of(chosen, number))
        except BaseException:
            self._undo(topic.name, chosen, before)
            raise
        # The topic exists: a plan that is left over finds nothing to do.
        with suppress(StorageError):
            others = [n for n, each in enumerate(before) if each and n not in chosen.values()]
            for number in (*others, *sorted(set(chosen.values()))):
                # A plan of before waits for a directory that is not open.
                self._note(number, topic, (), _plan_of(before[number]), total)

    def _plan(self, chosen: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the new partitions by the ids of their directories. A directory without an id is left out:
        its own file says it."""
        plan = {}
        for number in set(chosen.values()):
            directory_id = self._directories[number].directory_id
            if directory_id is not None:
                plan[format_uuid(directory_id)] = _of(chosen, number)
        return plan

    def _note(
        self,
        number: int,
        topic: Topic,
        more: Iterable[int],
        plan: Plan | None,
        total: int | None = None,
    ) -> None:
        """Write into a directory's file that it has, or will have, these additional partitions, and that the
        topic has a total of so many; if that is not given, it stays."""
        file = self._files[number]
        known = file.entries.get(topic.name)
        listed = {*(known.topic.partitions if known else ()), *more}
        if total is None and known is not None:
            total = known.total_partitions
        entry = TopicEntry(
            Topic(topic.name, topic.topic_id, tuple(sorted(listed)), topic.config),
            plan,
            total_partitions=total,
        )
        if entry != known:
            file.put(entry)

    def _forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drop what checkpoints still say of partitions of the same name that are gone."""
        gone = set(topic_partitions)
        for each in self._directories:
            each.forget(gone)

    def _make_folders(self, number: int, topic: Topic, partitions: Iterable[int]) -> None:
        directory = self._directories[number]
        topic_partitions = [TopicPartition(topic.name, each) for each in partitions]
        for topic_partition in topic_partitions:
            self._file_system.make_dir(directory.folder(topic_partition))
            self._put_metadata(directory, topic_partition, topic.topic_id)
        if topic_partitions:
            self._file_system.sync_dir(directory.root)
            self._take(topic_partitions, number)

    def _put_metadata(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: bytes | None
    ) -> None:
        if topic_id is not None:
            path = os.path.join(directory.folder(topic_partition), PARTITION_METADATA)
            data = encode_partition_metadata(topic_id)
            replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, data)

    def _undo(
        self, name: str, chosen: Mapping[int, int], before: Sequence[TopicEntry | None]
    ) -> None:
        """Remove partitions of which not all could be created. What cannot be removed is completed by the
        next opening."""
        made = {TopicPartition(name, partition): number for partition, number in chosen.items()}
        self._set({p: number for p, number in self._directory_of.items() if p not in made}, {name})
        with suppress(StorageError):
            for topic_partition, number in made.items():
                folder = self._directories[number].folder(topic_partition)
                if self._is_empty(folder):
                    for suffix in ("", TEMPORARY_SUFFIX):
                        self._file_system.unlink(os.path.join(folder, PARTITION_METADATA + suffix))
                    self._file_system.remove_dir(folder)
            for number in sorted(set(chosen.values())):
                self._files[number].restore(name, before[number])
        self._missing.clear()

    def _is_empty(self, folder: str) -> bool:
        """Return whether a folder exists that was just created, with nothing but its id in it."""
        try:
            names = {entry.name for entry in self._file_system.list_dir(folder)}
        except StorageError:
            return False
        return names <= {PARTITION_METADATA, PARTITION_METADATA + TEMPORARY_SUFFIX}

    # Altering and deleting.

    def alter(self, name: str, config: LogConfig) -> Topic:
        """Give a topic new configs, in one step: its configs are those of the first directory that has an
        entry, which is written last."""
        with self.lock:
            self.check_whole(name, "altered")
            topic = replace(self._stored(name), config=config)
            if topic.topic_id is None:
                topic = replace(topic, topic_id=self.topic_id(name))
            here = self._by_directory(name)
            listed = {n for n, file in enumerate(self._files) if name in file.entries}
            try:
                for number in sorted(listed or here, reverse=True):
                    plan = _plan_of(self._files[number].entries.get(name))
                    self._note(number, topic, here.get(number, ()), plan)
            except BaseException as error:
                if self._may_be_written(self._files[min(listed or here)]):
                    error.add_note(
                        f"topic {name!r} has its old configs in this process, and may have the new ones when "
                        "the log directory is opened again: repeat the change to be sure"
                    )
                raise
            self._missing.clear()
            return self.topic(name)

    def _may_be_written(self, file: TopicFile) -> bool:
        """Return whether a file may have been replaced by a write that failed."""
        try:
            return not file.is_as_known()
        except (StorageError, CorruptionError, MemoryError, KeyboardInterrupt):
            return True

    def _by_directory(self, name: str) -> dict[int, tuple[int, ...]]:
        """Return the partitions of a topic by directory."""
        found: dict[int, list[int]] = {}
        for partition in self.partitions(name):
            number = self._directory_of[TopicPartition(name, partition)]
            found.setdefault(number, []).append(partition)
        return {number: tuple(each) for number, each in found.items()}

    def begin_delete(self, name: str) -> None:
        """Decide that a topic is deleted. From here on it is gone for this process, and after a crash for
        the next. If this fails the topic stays, unless a mark was written and cannot be taken back: a note
        of the error says so."""
        with self.lock:
            self.check_whole(name, "deleted")
            topic = replace(self._stored(name), topic_id=self.topic_id(name))
            partitions = self._by_directory(name)
            for number, file in enumerate(self._files):
                entry = file.entries.get(name)
                if entry is not None:  # it may know of partitions whose folders were taken away
                    known = {*entry.topic.partitions, *partitions.get(number, ())}
                    partitions[number] = tuple(sorted(known))
            before = {number: self._files[number].entries.get(name) for number in partitions}
            try:
                self._deletions.begin(topic, partitions)
            except BaseException as error:
                if self._deletions.take_back(name, before):
                    raise
                error.add_note(
                    f"topic {name!r} may be marked as deleted: opening the log directory again finishes "
                    "the deletion, or takes it back"
                )
                self._drop(name)
                raise
            self._drop(name)

    def _drop(self, name: str) -> None:
        kept = {each: n for each, n in self._directory_of.items() if each.topic != name}
        self._set(kept, {name})

    def finish_delete(self, name: str) -> list[tuple[int, str]]:
        """Rename the folders of a deleted topic and drop what is said of it; return the folders, which
        ``remove_folders`` takes."""
        with self.lock:
            before = set(self._deletions.folders())
            self._deletions.finish(name, self._list())
            self._listing = self._list()
            return [each for each in self._deletions.folders() if each not in before]

    def remove_folders(self, folders: Collection[tuple[int, str]] | None = None) -> None:
        """Remove folders of deleted topics; all that there are, if none are given."""
        with self.lock:
            self._deletions.remove(self._deletions.folders() if folders is None else folders)

    # After a crash.

    def complete(self) -> None:
        """Finish what a process that died had begun: topics that it was deleting, creating or altering."""
        for name in sorted(self._deletions.names()):
            self._deletions.settle(name, self._list())
        self._show(self._list())
        with suppress(StorageError):  # tried again at the next opening
            self._deletions.remove(self._deletions.folders())
        self._complete_creations()
        self._complete_alterations()

    def _complete_alterations(self) -> None:
        for name in {name for file in self._files for name in file.entries} - set(self._namesakes):
            known = self._entry(name)
            for file in self._files:
                entry = file.entries.get(name)
                if known is not None and entry is not None and entry.topic.config != known.config:
                    file.put(replace(entry, topic=replace(entry.topic, config=known.config)))

    def _complete_creations(self) -> None:
        numbers = self._numbers()
        begun = [
            (number, entry)
            for number, file in enumerate(self._files)
            for entry in file.entries.values()
            if entry.plan is not None and entry.topic.name not in self._namesakes
        ]
        for number, entry in begun:
            assert entry.plan is not None
            planned = {numbers[name]: them for name, them in entry.plan.items() if name in numbers}
            if self._directories[number].directory_id is None:
                planned[number] = entry.topic.partitions
            for each, partitions in sorted(planned.items()):
                known = self._files[each].entries.get(entry.topic.name)
                plan = _merged(_plan_of(known), entry.plan)
                self._note(each, entry.topic, partitions, plan, entry.total_partitions)
                self._complete(each, entry.topic, partitions)
        for _, entry in begun:
            self._finish_plans(entry, numbers.keys())

    def _finish_plans(self, entry: TopicEntry, directory_ids: Collection[str]) -> None:
        """Drop the plans of a topic that are carried out: those that name only directories that are open.
        Directories without a plan come first; they may not know the new total yet."""
        name = entry.topic.name
        holding = [number for number, file in enumerate(self._files) if name in file.entries]
        for number in sorted(
            holding, key=lambda n: _plan_of(self._files[n].entries[name]) is not None
        ):
            known = self._files[number].entries[name]
            if not set(known.plan or ()) - set(directory_ids):
                total = max(known.total_partitions or 0, entry.total_partitions or 0) or None
                self._note(number, replace(entry.topic, config=known.topic.config), (), None, total)

    def _complete(self, number: int, topic: Topic, partitions: Iterable[int]) -> None:
        missing = []
        for partition in partitions:
            topic_partition = TopicPartition(topic.name, partition)
            at = self._directory_of.get(topic_partition)
            if at is None:
                missing.append(partition)
                continue
            directory = self._directories[at]
            path = os.path.join(directory.folder(topic_partition), PARTITION_METADATA)
            if self._file_system.stat(path) is None:
                self._put_metadata(directory, topic_partition, topic.topic_id)
            else:
                self._file_system.sync_dir(directory.folder(topic_partition))
        self._make_folders(number, topic, missing)


def _plan_of(entry: TopicEntry | None) -> Plan | None:
    return None if entry is None else entry.plan


def _merged(one: Plan | None, other: Plan) -> Plan:
    """Return a plan with the partitions of two."""
    both = {name: set(each) for name, each in other.items()}
    for name, each in (one or {}).items():
        both.setdefault(name, set()).update(each)
    return {name: tuple(sorted(each)) for name, each in both.items()}


def _of(chosen: Mapping[int, int], number: int) -> tuple[int, ...]:
    return tuple(partition for partition, at in chosen.items() if at == number)


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:_LISTED_MAX]))
    return f"{shown}, …" if len(names) > _LISTED_MAX else shown
