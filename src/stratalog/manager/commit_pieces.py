"""Open a log directory for one exactly-once commit: what a Spark driver calls when its tasks are done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import StratalogError
from stratalog.manager.commits.commits import CommitResult, TopicPlan
from stratalog.manager.logs import BrokerConfigs, open_logs
from stratalog.manager.root.lock_wait import when_unlocked
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem

__all__ = ["commit_pieces"]


def commit_pieces(
    root: str | os.PathLike[str],
    key: CommitKey,
    pieces: Iterable[Piece],
    *,
    topics: Mapping[str, TopicPlan] | None = None,
    file_system: FileSystem | None = None,
    clock: Clock = SYSTEM_CLOCK,
    config: BrokerConfigs | None = None,
    lock_timeout_s: float = 10.0,
    threads: int = 1,
) -> CommitResult:
    """Put pieces into the logs of the directory that they were staged in, all of them once.

    Called again with the same key, it finds that and does nothing. ``topics`` are those to create where they
    are not there. Where another commit is under way it is waited for; where a broker or another writer has
    the directory open for longer than ``lock_timeout_s``, LockedError. What cannot be is refused before
    anything has changed; an error that comes later says that the commit will happen. ``threads`` is how many
    partitions are worked on at once. ``config`` has defaults for all topics, as in ``stratalog.open``.
    """
    listed = list(pieces)
    files = file_system or OsFileSystem()
    logs = when_unlocked(
        lambda: open_logs(root, config=config, file_system=files, clock=clock), lock_timeout_s
    )
    try:
        result = logs.commit(key, listed, topics, threads=threads)
    except BaseException as error:
        try:
            logs.close()
        except StratalogError as second:
            error.add_note(f"and the log directory could not be closed in order: {second}")
        raise
    try:
        logs.close()
    except StratalogError as error:
        error.add_note(
            "the commit succeeded: do not retry it"
            if key.is_fresh
            else "the commit succeeded: a retry detects that"
        )
        raise
    return result
