"""Log directories for the tests of ``stratalog.open``, and a small language to look at them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stratalog
from stratalog.manager.logs import Logs
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import ManualClock, MemoryFileSystem

ROOT = "/logs"
COMMITTED = Isolation.COMMITTED

#: Where a clock that nobody moves stands.
NOW = ManualClock().now_ms()


def memory(*folders: str) -> MemoryFileSystem:
    """A disk in memory with an empty folder for the logs."""
    return MemoryFileSystem(folders=folders or (ROOT,))


def open_memory(file_system: FileSystem, *roots: str, **options: Any) -> Logs:
    """Logs on a disk in memory, at the disk's own time."""
    inner = file_system
    while not isinstance(inner, MemoryFileSystem):
        inner = inner.inner  # type: ignore[attr-defined]
    return stratalog.open(
        list(roots or (ROOT,)), file_system=file_system, clock=inner.clock, **options
    )


def values(logs: Logs, topic: str, partitions: Any = None, **choice: Any) -> list[bytes | None]:
    """The values that a reader sees, partition after partition."""
    return [record.value for record in logs.read(topic, partitions, **choice).records()]


def tree(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below a folder: bytes, time of change, mode; and every folder's time of change."""

    def entries() -> Iterator[tuple[str, tuple[bytes, int, int]]]:
        for path in sorted([folder, *folder.rglob("*")]):
            found = path.lstat()
            data = path.read_bytes() if path.is_file() else b""
            yield os.path.relpath(path, folder), (data, found.st_mtime_ns, found.st_mode)

    return dict(entries())
