"""Open a log directory to replace segments by staged ones: what a driver does when its tasks are done."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import StratalogError
from stratalog.manager.commits.commits import ReplaceResult
from stratalog.manager.logs import BrokerConfigs, Paths, open_logs
from stratalog.manager.root.lock_wait import when_unlocked
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem

__all__ = ["commit_segments"]


def commit_segments(
    directories: Paths,
    key: CommitKey,
    partitions: Iterable[PartitionGroups],
    *,
    file_system: FileSystem | None = None,
    clock: Clock = SYSTEM_CLOCK,
    config: BrokerConfigs | None = None,
    lock_timeout_s: float = 10.0,
    threads: int = 1,
) -> ReplaceResult:
    """Put staged segments in the place of live ones, group by group, in log directories that are not open.
    The partitions are all in one of them, and so is what was staged.

    Called again with the same key, it finds that and does nothing. Before anything has changed, StorageError
    says that a log does not have the planned segments any more, and CorruptionError that a staged one is
    damaged. An error that comes later says that the commit will happen: the next writer of the directory
    finishes it. A group that others change in between stays as they left it, with those after it, and
    ``reports`` says so. ``threads`` is how many groups are checked at once.
    """
    listed = list(partitions)
    files = file_system or OsFileSystem()
    logs = when_unlocked(
        lambda: open_logs(directories, config=config, file_system=files, clock=clock),
        lock_timeout_s,
    )
    try:
        result = logs.replace_segments(key, listed, threads=threads)
    except BaseException as error:
        try:
            logs.close()
        except StratalogError as second:
            error.add_note(f"and the log directory could not be closed in order: {second}")
        raise
    try:
        logs.close()
    except StratalogError as error:
        error.add_note("the replacement succeeded: do not retry it")
        raise
    return result
