"""Remove what an interrupted salvage left, and the folders that attempts of tasks wrote into.

If tasks write a new directory, each attempt of a task writes into a folder of its own, and the driver moves
the files of one attempt into place. So it does not matter how often a task is tried, or whether an attempt
that was given up goes on writing.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from typing import Final

from stratalog.errors import StorageError, UsageError
from stratalog.rewrite.salvage.report import REPORT_NAME
from stratalog.storage.files.filesystem import DirEntry, FileSystem
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    DAMAGED_DIR,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    STRATALOG_TOPICS,
    parse_partition_dir,
    parse_partition_file,
)

__all__ = [
    "exists",
    "make_attempt",
    "make_attempts",
    "remove_attempt",
    "remove_attempts",
    "remove_incomplete",
]

_ROOT_FILES: Final = frozenset(
    {
        CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES,
        RECOVERY_CHECKPOINT, STRATALOG_TOPICS,
    }
)  # fmt: skip
_PARTITION_FILES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA})
_ATTEMPTS_DIR: Final = "stratalog-attempts"
_ATTEMPT: Final = re.compile("[0-9a-f]{32}")
#: How often attempts are removed that others still write into.
_REMOVALS_MAX: Final = 100


def exists(file_system: FileSystem, folder: str) -> bool:
    """Return whether a folder is there."""
    try:
        file_system.list_dir(folder)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def remove_incomplete(file_system: FileSystem, folder: str) -> None:
    """Remove an incomplete target. Raise UsageError if something in it is not from a salvage; then nothing is
    removed."""
    if exists(file_system, folder):
        names = _Names(file_system)
        names.add_root(folder)
        names.remove()


def make_attempts(file_system: FileSystem, incomplete: str) -> None:
    """Create the folder that attempts of tasks make theirs in."""
    file_system.make_dir(os.path.join(incomplete, _ATTEMPTS_DIR))


def make_attempt(file_system: FileSystem, incomplete: str) -> str:
    """Create a folder for one attempt of a task, and return its path. No other attempt has it, also none of
    another application. Raise StorageError if the salvage is over."""
    path = os.path.join(incomplete, _ATTEMPTS_DIR, uuid.uuid4().hex)
    file_system.make_dir(path)
    return path


def remove_attempt(file_system: FileSystem, attempt: str) -> None:
    """Remove the folder of an attempt that has failed."""
    names = _Names(file_system)
    names.add_attempt(attempt)
    names.remove()


def remove_attempts(file_system: FileSystem, incomplete: str) -> None:
    """Remove the folders of all attempts, if there are any. An attempt that still writes fails then. Raise
    StorageError if new files appear faster than they are removed."""
    attempts = os.path.join(incomplete, _ATTEMPTS_DIR)
    for left in reversed(range(_REMOVALS_MAX)):
        if not exists(file_system, attempts):
            return
        names = _Names(file_system)
        try:
            names.add_attempts(attempts)
            names.remove()
        except StorageError as error:
            if left == 0 or error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise


class _Names:
    """The files and folders of an incomplete target, each folder before the one it is in."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._files: list[str] = []
        self._folders: list[str] = []

    def remove(self) -> None:
        for path in self._files:
            self._file_system.unlink(path)
        for path in self._folders:
            self._file_system.remove_dir(path)

    def add_root(self, root: str) -> None:
        for entry in self._file_system.list_dir(root):
            path = os.path.join(root, entry.name)
            if entry.is_file and entry.name in _ROOT_FILES:
                self._files.append(path)
            elif entry.is_dir and entry.name == _ATTEMPTS_DIR:
                self.add_attempts(path)
            elif _is_partition(entry):
                self._add_partition(path)
            else:
                raise _unknown(path)
        self._folders.append(root)

    def add_attempts(self, folder: str) -> None:
        for entry in self._file_system.list_dir(folder):
            path = os.path.join(folder, entry.name)
            if not entry.is_dir or not _ATTEMPT.fullmatch(entry.name):
                raise _unknown(path)
            self.add_attempt(path)
        self._folders.append(folder)

    def add_attempt(self, attempt: str) -> None:
        for entry in self._file_system.list_dir(attempt):
            path = os.path.join(attempt, entry.name)
            if not _is_partition(entry):
                raise _unknown(path)
            self._add_partition(path)
        self._folders.append(attempt)

    def _add_partition(self, folder: str) -> None:
        for entry in self._file_system.list_dir(folder):
            path = os.path.join(folder, entry.name)
            if entry.is_dir and entry.name == DAMAGED_DIR:
                self._add_damaged(path)
            elif entry.is_file and (
                entry.name in _PARTITION_FILES or parse_partition_file(entry.name) is not None
            ):
                self._files.append(path)
            else:
                raise _unknown(path)
        self._folders.append(folder)

    def _add_damaged(self, folder: str) -> None:
        for entry in self._file_system.list_dir(folder):
            path = os.path.join(folder, entry.name)
            if not entry.is_file or not (entry.name == REPORT_NAME or entry.name.endswith(".bin")):
                raise _unknown(path)
            self._files.append(path)
        self._folders.append(folder)


def _is_partition(entry: DirEntry) -> bool:
    return entry.is_dir and parse_partition_dir(entry.name) is not None


def _unknown(path: str) -> UsageError:
    return UsageError(
        f"{path} is not from an interrupted salvage: move it away, or choose another target"
    )
