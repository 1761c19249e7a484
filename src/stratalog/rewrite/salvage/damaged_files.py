"""Store every range of bytes that is not kept in a file of its own, and the report next to them."""

from __future__ import annotations

import os
from typing import Final

from stratalog.errors import StorageError
from stratalog.records import kernel
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.losses import DamagedRange
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.report import REPORT_NAME, encode_report, range_file_name
from stratalog.storage.files.filesystem import FileSystem, ReadableFile, WritableFile
from stratalog.storage.files.holes import next_data
from stratalog.storage.names import DAMAGED_DIR

__all__ = ["store_damage", "write_new_file"]

_COPY_BYTES: Final = 1 << 20


def store_damage(
    file_system: FileSystem, plan: SalvagePlan, folder: str, limits: RewriteLimits
) -> None:
    """Write the ranges and the report into a sub-folder of the new partition folder. Kafka does not look into
    it. If nothing was damaged, there is only the report."""
    damaged = os.path.join(folder, DAMAGED_DIR)
    file_system.make_dir(damaged)
    paths = [os.path.join(damaged, range_file_name(plan, each)) for each in plan.ranges]
    for each, path in zip(plan.ranges, paths, strict=True):
        source = file_system.open_readable(plan.sources[each.source].path)
        try:
            _store(file_system, source, each, path, limits)
        finally:
            source.close()
    # All are written before the first fsync: one of the file system's own serves them all then.
    for path in paths:
        _sync(file_system, path)
    write_new_file(file_system, os.path.join(damaged, REPORT_NAME), encode_report(plan))
    file_system.sync_dir(damaged)


def _sync(file_system: FileSystem, path: str) -> None:
    file = file_system.open_writable(path)
    try:
        file.sync()
    finally:
        file.close()


def write_new_file(file_system: FileSystem, path: str, data: bytes) -> None:
    """Write a file that is not there yet, and fsync it."""
    file = file_system.open_writable(path, create=True)
    try:
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()


def _store(
    file_system: FileSystem,
    source: ReadableFile,
    damaged: DamagedRange,
    path: str,
    limits: RewriteLimits,
) -> None:
    file = file_system.open_writable(path, create=True)
    try:
        file.truncate(damaged.size_bytes)
        _copy(source, damaged, file, limits)
        file.begin_sync(0, damaged.size_bytes)
    finally:
        file.close()


def _copy(
    source: ReadableFile, damaged: DamagedRange, file: WritableFile, limits: RewriteLimits
) -> None:
    """Copy what is not zeros: those are there already, and take no room."""
    position = damaged.start
    while position < damaged.end:
        position = min(next_data(source, position, damaged.end), damaged.end)
        size = min(_COPY_BYTES, damaged.end - position)
        data = source.read(position, size)
        if len(data) < size:
            raise StorageError("became shorter while it was salvaged", path=source.path)
        limits.note(0 if damaged.is_blank else size)
        if kernel.zero_run(data, 0, size) < size:
            file.write_at(position - damaged.start, data)
        position += size
