"""Store every range of bytes that is not kept in a file of its own, and the report next to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from stratalog.errors import StorageError
from stratalog.records import kernel
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.losses import DamagedRange
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.report import REPORT_NAME, encode_report, range_file_name
from stratalog.storage.files.filesystem import FileSystem, ReadableFile, WritableFile
from stratalog.storage.files.holes import next_data

__all__ = ["RangeToStore", "ranges_to_store", "store_ranges", "write_new_file", "write_report"]

_COPY_BYTES: Final = 1 << 20


class RangeToStore(NamedTuple):
    """A range of bytes that is not kept, the file that it is of, and the name of the one it is stored in."""

    path: str
    damaged: DamagedRange
    name: str


def ranges_to_store(plan: SalvagePlan) -> list[RangeToStore]:
    """Return what is stored of a partition besides what is kept."""
    return [
        RangeToStore(plan.sources[each.source].path, each, range_file_name(plan, each))
        for each in plan.ranges
    ]


def store_ranges(
    file_system: FileSystem, ranges: Sequence[RangeToStore], folder: str, limits: RewriteLimits
) -> None:
    """Write ranges into the files of a folder, and fsync them."""
    for each in ranges:
        source = file_system.open_readable(each.path)
        try:
            path = os.path.join(folder, each.name)
            _store(file_system, source, each.damaged, path, limits)
        finally:
            source.close()
    # All are written before the first fsync: one of the file system's own serves them all then.
    for each in ranges:
        _sync(file_system, os.path.join(folder, each.name))


def write_report(file_system: FileSystem, plan: SalvagePlan, folder: str) -> None:
    """Write the report next to the ranges, and fsync the folder."""
    write_new_file(file_system, os.path.join(folder, REPORT_NAME), encode_report(plan))
    file_system.sync_dir(folder)


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
