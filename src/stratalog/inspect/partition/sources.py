"""From the paths that a user names to the files that are read: partition by partition, segment by segment.

A path is a file, a partition's folder, or a log directory that holds such folders. Which of these it is, the
contents say and not the name: ``kafka-logs-1`` could be either. Folders are only listed. What is not known
in them is told and left alone; links in them are not followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.file.span import segments_in_order
from stratalog.inspect.partition.abandoned import without_leftovers
from stratalog.inspect.partition.deleted_topics import DeletedTopics
from stratalog.inspect.partition.folder_notes import deletion_note, partition_notes, root_notes
from stratalog.inspect.partition.log_starts import LogStarts
from stratalog.inspect.partition.partition_filter import EVERYTHING, PartitionFilter
from stratalog.inspect.partition.visibility import Journals
from stratalog.storage.commits.visibility import repeat_look
from stratalog.storage.files.filesystem import DirEntry, FileSystem, OsFileSystem
from stratalog.storage.names import (
    FOREIGN_ROOT_DIRS,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    is_marked_partition_dir,
    is_path,
    parse_partition_dir,
    parse_partition_file,
    parse_segment_name,
)
from stratalog.storage.replace.settle import LISTINGS_MAX, SettledFolder, read_settled
from stratalog.storage.segment.clean_end import CleanEnd, CleanEnds, is_still_clean
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.inspect.partition.clean_excess import CleanExcess
    from stratalog.inspect.partition.ends import EndsCache

__all__ = [
    "PartitionSource",
    "Paths",
    "Sources",
    "find_sources",
    "foreign_folder_error",
    "is_log_directory",
    "is_partition_folder",
    "path_list",
    "relisted",
    "vanished",
    "with_fresh_listing",
    "with_segments_now",
]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

#: What tells a partition's folder, and a log directory, even where they hold nothing else.
_PARTITION_FILES: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_ROOT_FILES: Final = (META_PROPERTIES, RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT)

#: What listing a path says when it is no folder; opening it as a file then says what is wrong with it.
_NO_FOLDER: Final = (errno.ENOTDIR, errno.ENOENT, errno.ELOOP)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """The data files of one partition, in the order of their offsets.

    ``topic_partition`` is None for files in a folder that is not a partition's. Of what lies below
    ``log_start`` the log directory says that it was deleted. From ``visible_end`` on nothing is shown: a
    commit into several partitions is in progress there, or may be when it is read (see
    ``storage.commits.visibility``).
    ``is_listed``: the files were found, not named, so that one of them may be gone before it is opened.
    ``swapped`` are the names that some of them do not have yet, but will (see ``settling``). ``clean_end``
    is where a clean shutdown left the log, read before the folder was listed.
    """

    folder: str
    topic_partition: TopicPartition | None
    segments: tuple[str, ...]
    log_start: int = 0
    visible_end: int | None = None
    is_listed: bool = False
    swapped: frozenset[str] = frozenset()
    clean_end: CleanEnd | None = None

    @property
    def name(self) -> str:
        return self.folder if self.topic_partition is None else str(self.topic_partition)

    def clean_excess(self, file_system: FileSystem | None = None) -> CleanExcess | None:
        """Return the last batch if it lies beyond where a clean shutdown left the log, otherwise None."""
        if self.clean_end is None or not self.segments:
            return None
        # Imported here, because most commands read a log without a clean end, or a file alone.
        from stratalog.inspect.partition.clean_excess import find_clean_excess

        return find_clean_excess(self, file_system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that is to be read. ``warnings`` are worth a line always, ``notes`` where folders are
    what was asked about."""

    partitions: tuple[PartitionSource, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: The log directories that were named, as they were named.
    roots: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for source in self.partitions for path in source.segments)

    @property
    def has_folders(self) -> bool:
        return any(source.is_listed for source in self.partitions)


def path_list(paths: Paths) -> tuple[str, ...]:
    """The paths as text; UsageError where there is none."""
    listed: tuple[object, ...] = (paths,)
    if isinstance(paths, Iterable) and not isinstance(paths, str | os.PathLike):
        listed = tuple(paths)
    if not listed:
        raise UsageError("no file to read")
    for path in listed:
        if not isinstance(path, str | os.PathLike) or not is_path(os.fspath(path)):
            raise UsageError(f"paths are texts or path objects, not {path!r}")
    return tuple(os.fspath(path) for path in listed if isinstance(path, str | os.PathLike))


def find_sources(
    paths: Paths,
    wanted: PartitionFilter = EVERYTHING,
    file_system: FileSystem | None = None,
    *,
    cache: EndsCache | None = None,
    on_refused: Callable[[StorageError], None] | None = None,
) -> Sources:
    """Everything under these paths that is wanted.

    First files that were named, by folder as they were named, then what lies in folders, by topic and
    partition. UsageError where one partition is there twice, and where something that was asked for is
    not there at all. ``cache`` is for who asks again and again: what it knows is not looked for.

    A folder of a log directory that cannot be listed is an error; with ``on_refused`` that is called with
    it, and the other folders are found all the same.
    """
    listed = path_list(paths)

    def find() -> tuple[Sources, list[StorageError]] | None:
        finder = _Finder(wanted, file_system or OsFileSystem(), cache)
        for path in listed:
            finder.add(path)
        found = finder.found()
        return None if found is None else (found, finder.refused)

    found, refused = repeat_look(find, listed[0])
    for error in refused:
        if on_refused is None:
            raise error
        on_refused(error)
    return found


class _Finder:
    """Takes the paths one after the other."""

    def __init__(
        self, wanted: PartitionFilter, file_system: FileSystem, cache: EndsCache | None
    ) -> None:
        self._wanted = wanted
        self._file_system = file_system
        self._files: list[str] = []
        self._folders: dict[str, PartitionSource] = {}  # by absolute path
        self._topic_partitions: list[TopicPartition] = []
        self._notes: list[str] = []
        self._links: list[str] = []
        self._named_roots: list[str] = []
        #: What the operating system said of folders that cannot be listed.
        self.refused: list[StorageError] = []
        self._starts = LogStarts(file_system)
        self._clean_ends = CleanEnds(file_system)
        self._journals = Journals(file_system, cache)
        self._deleted = DeletedTopics(file_system)
        self._named: set[str] = set()  # folders of partitions, by absolute path
        self._roots: dict[str, str] = {}  # of folders whose directory may have commits

    def add(self, path: str) -> None:
        try:
            entries = self._file_system.list_dir(path)
        except StorageError as error:
            if error.errno not in _NO_FOLDER:
                raise
            self._files.append(path)
            return
        if is_partition_folder(path, entries):
            self._journals.before(os.path.dirname(os.path.abspath(path)))
            self._named.add(os.path.abspath(path))
            self._add_partition(path)
        elif is_log_directory(entries):
            self._add_root(path, entries)
        else:
            raise foreign_folder_error(path)

    def _add_root(self, path: str, entries: list[DirEntry]) -> None:
        self._notes += root_notes(path, entries)
        self._named_roots.append(path)
        self._journals.before(os.path.abspath(path))
        self._deleted.add(os.path.abspath(path), entries)
        for entry in entries:
            topic_partition = parse_partition_dir(entry.name)
            if topic_partition is None or is_marked_partition_dir(entry.name):
                continue
            if not entry.is_dir:
                self._warn_of_link(path, entry)
                continue
            if entry.name in FOREIGN_ROOT_DIRS and not self._wanted.names(topic_partition.topic):
                continue
            self._topic_partitions.append(topic_partition)
            if not self._wanted.takes(topic_partition):
                continue
            folder = os.path.join(path, entry.name)
            try:
                self._add_partition(folder)
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    self._notes.append(f"{folder} was deleted while the directory was listed")
                else:
                    self.refused.append(error)

    def _warn_of_link(self, folder: str, entry: DirEntry) -> None:
        """It has a name as if it were to be read."""
        if not entry.is_file:
            path = os.path.join(folder, entry.name)
            self._links.append(f"{path} is a symbolic link or not a regular file: skipped")

    def _add_partition(self, folder: str) -> None:
        """List a partition's folder, after the journal of its directory was read."""
        whole = os.path.abspath(folder)
        name = os.path.basename(whole)
        topic_partition = parse_partition_dir(name)
        if topic_partition is not None:
            self._topic_partitions.append(topic_partition)
        if not self._wanted.takes(topic_partition) or whole in self._folders:
            return
        root = os.path.dirname(whole)
        is_log = topic_partition is not None and not is_marked_partition_dir(name)
        clean_end = (
            self._clean_ends.of(root, topic_partition)
            if is_log and topic_partition is not None
            else None
        )
        settled = read_settled(self._file_system, folder)
        self._notes += partition_notes(folder, settled.entries)
        for entry in settled.entries:
            if parse_segment_name(entry.name) is not None:
                self._warn_of_link(folder, entry)
        source = PartitionSource(
            folder=folder,
            topic_partition=topic_partition,
            segments=_segments(folder, settled),
            swapped=frozenset(settled.swapped),
            is_listed=True,
            clean_end=clean_end,
        )
        source = without_leftovers(source, self._file_system)
        if is_log and topic_partition is not None:
            self._roots[whole] = root
            source = replace(source, log_start=self._starts.of(root, topic_partition))
            source = self._journals.ended(root, source)
        self._folders[whole] = source

    def found(self) -> Sources | None:
        """None where so much was committed meanwhile that all has to be listed again."""
        if not self._hide():
            return None
        self._leave_out_deleted()
        listed = sorted(
            self._folders.values(), key=lambda source: source.topic_partition or ("", -1)
        )
        named = [
            source
            for source in _named_files(self._files)
            if os.path.abspath(source.folder) not in self._folders
        ]
        topic_partitions = [
            source.topic_partition for source in named if source.topic_partition is not None
        ]
        self._wanted.check([*self._topic_partitions, *topic_partitions])
        kept = [source for source in named if self._wanted.takes(source.topic_partition)]
        _refuse_twice(listed, kept)
        return Sources(
            partitions=(*kept, *listed),
            warnings=(*self._starts.warnings, *self._journals.warnings, *self._links),
            notes=tuple(self._notes),
            roots=tuple(self._named_roots),
        )

    def _leave_out_deleted(self) -> None:
        """Leave out partitions of deleted topics, unless their folders were named."""
        spellings = {os.path.abspath(path): path for path in self._named_roots}
        for root, topics in sorted(self._deleted.found().items()):
            gone = {
                whole: source.topic_partition
                for whole, source in self._folders.items()
                if os.path.dirname(whole) == root
                and whole not in self._named
                and source.topic_partition is not None
                and source.topic_partition.topic in topics
                and not is_marked_partition_dir(os.path.basename(whole))
            }
            for whole in gone:
                del self._folders[whole]
                self._roots.pop(whole, None)
            left = {source.topic_partition for source in self._folders.values()}
            self._topic_partitions = [
                topic_partition
                for topic_partition in self._topic_partitions
                if topic_partition.topic not in topics or topic_partition in left
            ]
            self._notes.append(deletion_note(spellings[root], topics))

    def _hide(self) -> bool:
        """Hide commits that were not done when the listing began. False: everything must be listed again."""
        hidden = self._journals.hidden()
        if hidden is None:
            return False
        for whole, root in self._roots.items():
            source = self._folders[whole]
            end = (
                None
                if source.topic_partition is None
                else hidden.get(root, {}).get(source.topic_partition)
            )
            if end is not None and (source.visible_end is None or end < source.visible_end):
                self._folders[whole] = replace(source, visible_end=end)
        return True


def foreign_folder_error(path: str) -> StorageError:
    """Return the error for a folder that holds no logs."""
    return StorageError(
        "not a log directory or partition folder: no <topic>-<partition> folders, no segments",
        path=path,
    )


def is_partition_folder(path: str, entries: Sequence[DirEntry]) -> bool:
    """Return whether a folder with these entries is a partition's."""
    for entry in entries:
        if entry.is_file and (
            parse_partition_file(entry.name) is not None or entry.name in _PARTITION_FILES
        ):
            return True
    # Nothing in it: then there is only the name to go by.
    return not is_log_directory(entries) and parse_partition_dir(_name_of(path)) is not None


def is_log_directory(entries: Sequence[DirEntry]) -> bool:
    """Return whether a folder with these entries is a log directory."""
    return any(
        entry.name in _ROOT_FILES
        if entry.is_file
        else entry.is_dir and parse_partition_dir(entry.name) is not None
        for entry in entries
    )


def _name_of(path: str) -> str:
    return os.path.basename(os.path.abspath(path))


def _segments(folder: str, settled: SettledFolder) -> tuple[str, ...]:
    names = sorted(name for name in settled.names.files if parse_segment_name(name) is not None)
    return tuple(os.path.join(folder, settled.swapped.get(name, name)) for name in names)


def _named_files(paths: list[str]) -> Iterator[PartitionSource]:
    """Segments by their folder; a file whose name is no segment's stands for itself. One that is named
    twice is read once, under the name that came first."""
    spellings: dict[str, str] = {}
    for path in paths:
        spellings.setdefault(os.path.abspath(path), path)
    groups: dict[str, list[str]] = {}
    for path in segments_in_order(list(spellings.values())):
        whole = os.path.abspath(path)
        is_segment = parse_segment_name(os.path.basename(path)) is not None
        groups.setdefault(os.path.dirname(whole) if is_segment else whole, []).append(path)
    for files in groups.values():
        folder = os.path.dirname(files[0])
        topic_partition = parse_partition_dir(_name_of(folder))
        yield PartitionSource(folder=folder, topic_partition=topic_partition, segments=tuple(files))


def _refuse_twice(listed: list[PartitionSource], named: list[PartitionSource]) -> None:
    """One partition in two folders is two histories. Who names files one by one may compare them."""
    seen: dict[TopicPartition, str] = {}
    for source in listed:
        if source.topic_partition is None:
            continue
        if source.topic_partition in seen:
            raise _twice(source, seen[source.topic_partition])
        seen[source.topic_partition] = source.folder
    for source in named:
        if source.topic_partition in seen:
            raise _twice(source, seen[source.topic_partition])


def _twice(source: PartitionSource, other: str) -> UsageError:
    return UsageError(
        f"{source.name} is in {other} and in {source.folder}: read them one at a time"
    )


def vanished(source: PartitionSource, error: StorageError) -> bool:
    """Whether the error says that a file is gone that was there when its folder was listed."""
    return source.is_listed and error.errno == errno.ENOENT


def relisted(source: PartitionSource, file_system: FileSystem | None = None) -> PartitionSource:
    """The same partition as it is now; without segments where its folder is gone, and without its clean end
    where a writer was at work since."""
    files = file_system or OsFileSystem()
    if source.clean_end is not None and not is_still_clean(files, source.clean_end):
        source = replace(source, clean_end=None)
    return with_segments_now(source, files)


def with_segments_now(source: PartitionSource, file_system: FileSystem) -> PartitionSource:
    """Return the partition with the segments that it has now; with none if its folder is gone."""
    try:
        settled = read_settled(file_system, source.folder)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return replace(source, segments=(), swapped=frozenset())
    listed = replace(
        source, segments=_segments(source.folder, settled), swapped=frozenset(settled.swapped)
    )
    return without_leftovers(listed, file_system)


def with_fresh_listing(
    source: PartitionSource,
    file_system: FileSystem | None,
    question: Callable[[PartitionSource], Answer],
) -> Answer:
    """The answer to a question about a partition; where a file of it vanished meanwhile, asked again."""
    for _ in range(LISTINGS_MAX - 1):
        try:
            return question(source)
        except StorageError as error:
            if not vanished(source, error):
                raise
        source = relisted(source, file_system)
    return question(source)
