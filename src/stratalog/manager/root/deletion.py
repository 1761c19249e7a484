"""Delete topics, so that a crash at any step leaves them whole or gone.

The steps, for a topic in one or several log directories:

1. Each directory's ``stratalog-topics.json`` says that the topic is being deleted, and which directories are
   involved. When the last of them says so, the deletion is decided: from here on it will happen. Before, the
   next process that opens the directories takes it back.
2. The folders are renamed as in Kafka, to ``<topic>-<partition>.<mark>-delete``, and the roots are synced.
3. The checkpoints drop the partitions, and the files replace the topic by the names of its folders.
4. After ``file.delete.delay.ms``, or when the directory is closed or next opened, the folders are removed.
   Files that are neither Kafka's nor ours are left where they are.

A directory without a ``directory.id`` (Kafka before 3.7) cannot be named in other files. A topic in one
such directory is decided by its own file; one in several is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.manager.root.directory import LogDirectory
from stratalog.manager.root.topic_file import Topic, TopicEntry, TopicFile
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.formats.kafka_uuid import format_uuid, random_uuid
from stratalog.storage.formats.topic_entries import Deletion
from stratalog.storage.names import (
    TEMPORARY_SUFFIX,
    UNDO_MANIFEST,
    deleted_dir_name,
    parse_undo_dir,
)
from stratalog.storage.replace.folder import FolderNames
from stratalog.types import TopicPartition

__all__ = ["Deletions", "Verdict"]

#: Every partition that has a folder, and the number of its directory.
Listing = Sequence[tuple[TopicPartition, int]]

#: What recovery has truncated (``on_damage="cut"``).
_CUT: Final = re.compile(r"[0-9]{20}\.(?:log|kafka)\.[0-9]+(?:\.[0-9]+)?\.cut")


class Verdict(Enum):
    """What becomes of a deletion that was begun."""

    DECIDED = auto()  # every directory says so
    UNDECIDED = auto()  # one that is open does not: it is taken back
    PENDING = auto()  # those that are open say so, and others are not open


class Deletions:
    """The deletions of topics of some log directories, and what they have left to do."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        files: Sequence[TopicFile],
        file_system: FileSystem,
    ) -> None:
        self._directories = directories
        self._files = files
        self._file_system = file_system

    # What the files say.

    def names(self) -> set[str]:
        """Return the topics whose deletion was begun."""
        return {
            name
            for file in self._files
            for name, entry in file.entries.items()
            if entry.deletion is not None
        }

    def _marked(self, name: str) -> dict[int, TopicEntry]:
        """Return the entries that say that a topic is being deleted, by directory."""
        found = ((number, file.entries.get(name)) for number, file in enumerate(self._files))
        return {number: each for number, each in found if each is not None and each.deletion}

    def verdict(self, name: str, listing: Listing) -> Verdict:
        """Decide what becomes of the deletion of a topic."""
        numbers = self._numbers()
        has_folder = {number for each, number in listing if each.topic == name}
        is_pending = False
        marked = self._marked(name)
        for entry in marked.values():
            assert entry.deletion is not None
            for directory_id in entry.deletion.directories:
                number = numbers.get(directory_id)
                if number is None:
                    is_pending = True
                elif number not in marked and self._holds(number, entry, number in has_folder):
                    return Verdict.UNDECIDED
        return Verdict.PENDING if is_pending else Verdict.DECIDED

    def _holds(self, number: int, marked: TopicEntry, has_folder: bool) -> bool:
        """Return whether a directory still holds the topic of an entry; not another of the same name."""
        own = self._files[number].entries.get(marked.topic.name)
        return has_folder if own is None else own.topic.topic_id == marked.topic.topic_id

    def hidden(self, listing: Listing) -> set[tuple[str, int]]:
        """Return the topics, with the directories, that are not shown: they are deleted."""
        return {
            (name, number)
            for name in self.names()
            if self.verdict(name, listing) is not Verdict.UNDECIDED
            for number in self._marked(name)
        }

    def _numbers(self) -> dict[str, int]:
        return {
            format_uuid(each.directory_id): number
            for number, each in enumerate(self._directories)
            if each.directory_id is not None
        }

    # What is done.

    def begin(self, topic: Topic, partitions: Mapping[int, tuple[int, ...]]) -> None:
        """Decide the deletion of a topic, whose partitions are given by directory. UsageError if it is in
        several, and one of them has no id."""
        names = {number: name for name, number in self._numbers().items()}
        self._check_ids(topic.name, partitions, names)
        directories = tuple(names[each] for each in sorted(partitions) if each in names)
        deletion = Deletion(random_uuid().hex(), directories)
        for number in sorted(partitions):
            here = replace(topic, partitions=partitions[number])
            known = self._files[number].entries.get(topic.name) or TopicEntry(here)
            self._files[number].put(replace(known, topic=here, plan=None, deletion=deletion))

    def _check_ids(self, name: str, numbers: Collection[int], ids: Mapping[int, str]) -> None:
        nameless = [self._directories[each].root for each in sorted(numbers) if each not in ids]
        if nameless and len(numbers) > 1:
            raise UsageError(
                f"topic {name!r} is in several log directories, and {nameless[0]} has no directory.id in its "
                "meta.properties: a crash would leave half of the topic. Kafka from 3.7 on adds the id when "
                "it starts; or delete the topic's folders while no process has the directories open"
            )

    def take_back(self, name: str, before: Mapping[int, TopicEntry | None]) -> bool:
        """Undo ``begin``, which failed; return False if it cannot be undone: then it may be decided. A file
        that has no mark is not written, so that a full disk is no reason to give the topic up."""
        try:
            for number, entry in before.items():
                file = self._files[number]
                if file.entries.get(name) != entry or not file.is_as_known():
                    file.restore(name, entry)
        except (StorageError, CorruptionError, MemoryError, KeyboardInterrupt):
            return False  # the error of ``begin`` is raised
        return True

    def settle(self, name: str, listing: Listing) -> Verdict:
        """Finish a deletion that is decided, or take it back if it is not."""
        verdict = self.verdict(name, listing)
        if verdict is Verdict.DECIDED:
            self.finish(name, listing)
        elif verdict is Verdict.UNDECIDED:
            for number, entry in self._marked(name).items():
                self._files[number].put(replace(entry, deletion=None))
        return verdict

    def finish(self, name: str, listing: Listing) -> None:
        """Take the folders of a deleted topic out of their directories, and drop what is said of it."""
        marked = self._marked(name)
        gone = [each for each, number in listing if each.topic == name and number in marked]
        folders: dict[int, list[str]] = {number: [] for number in marked}
        for each, number in listing:
            if each.topic == name and number in marked:
                folders[number].append(self._rename(number, each, marked[number]))
        for number, entry in marked.items():
            # Those that were renamed before a crash, too.
            folders[number] += self._renamed(number, entry)
            self._file_system.sync_dir(self._directories[number].root)
            gone += [TopicPartition(name, each) for each in entry.topic.partitions]
        for number in marked:
            self._directories[number].forget(gone)
        for number in marked:
            self._files[number].replace_by_folders(name, sorted(set(folders[number])))

    def _rename(self, number: int, topic_partition: TopicPartition, entry: TopicEntry) -> str:
        assert entry.deletion is not None
        directory = self._directories[number]
        new = deleted_dir_name(topic_partition, entry.deletion.mark)
        self._file_system.rename(
            directory.folder(topic_partition), os.path.join(directory.root, new)
        )
        return new

    def _renamed(self, number: int, entry: TopicEntry) -> Iterator[str]:
        assert entry.deletion is not None
        suffix = f".{entry.deletion.mark}-delete"
        for each in self._file_system.list_dir(self._directories[number].root):
            if each.is_dir and each.name.endswith(suffix):
                yield each.name

    # The folders.

    def folders(self) -> list[tuple[int, str]]:
        """Return the folders of deleted topics that are to be removed, with their directories."""
        return [(n, name) for n, file in enumerate(self._files) for name in file.deleted_folders]

    def remove(self, folders: Collection[tuple[int, str]]) -> None:
        """Remove folders of deleted topics, but for files in them that are neither Kafka's nor ours."""
        for number, file in enumerate(self._files):
            names = {name for at, name in folders if at == number} & set(file.deleted_folders)
            if not names:
                continue
            root = self._directories[number].root
            present = {each.name for each in self._file_system.list_dir(root) if each.is_dir}
            for name in sorted(names & present):
                self._remove(os.path.join(root, name))
            # A removal that a power cut takes back is done again, as long as the file names the folder.
            self._file_system.sync_dir(root)
            file.forget_folders(names)

    def _remove(self, folder: str) -> bool:
        """Remove a folder, and what is kept in it to undo rewrites; return False if something is left."""
        is_empty = True
        for entry in self._file_system.list_dir(folder):
            path = os.path.join(folder, entry.name)
            if entry.is_file and _is_known(entry.name):
                self._file_system.unlink(path)
            elif not (entry.is_dir and parse_undo_dir(entry.name) and self._remove(path)):
                is_empty = False
        if is_empty:
            self._file_system.remove_dir(folder)
        return is_empty


def _is_known(name: str) -> bool:
    """Return whether a file of this name in a partition's folder is Kafka's, or ours."""
    plain = name.removesuffix(TEMPORARY_SUFFIX)
    is_ours = plain == UNDO_MANIFEST or not FolderNames.of([plain]).unknown
    return is_ours or _CUT.fullmatch(name) is not None
