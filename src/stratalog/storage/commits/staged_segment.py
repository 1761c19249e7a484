"""Read staged segments again: whether each is what its task said, and a sound part of the log."""

from __future__ import annotations

import os
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import ROW_WIDTH, Check, Row
from stratalog.storage.commits.segment_groups import FileContent, SegmentGroup, StagedSegment
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.segment import read_entries
from stratalog.storage.segment.sparse_index import IndexLimits

__all__ = ["check_staged_files", "check_staged_group", "file_content"]

_READ_BYTES: Final = 1 << 20


def file_content(file_system: FileSystem, path: str) -> FileContent:
    """Return size and CRC-32C of a whole file."""
    file = file_system.open_readable(path)
    try:
        buffer = memoryview(bytearray(_READ_BYTES))
        size, crc = 0, 0
        while read := file.read_into(size, buffer):
            crc = kernel.crc32c(buffer[:read], crc)
            size += read
        return FileContent(size, crc)
    finally:
        file.close()


def check_staged_files(file_system: FileSystem, root: str, segment: StagedSegment) -> None:
    """Raise CorruptionError if a file of a staged segment is missing, or is not what its task has written."""
    for kind, expected in segment.files.items():
        path = os.path.join(root, segment.file_name(kind))
        if file_system.stat(path) is None:
            raise CorruptionError("piece_missing", "a file of a staged segment is gone", path=path)
        found = file_content(file_system, path)
        if found != expected:
            raise CorruptionError(
                "piece_damaged",
                f"{found.size_bytes} bytes with CRC-32C {found.crc:08x}, and it had "
                f"{expected.size_bytes} with {expected.crc:08x}",
                path=path,
            )


def check_staged_group(file_system: FileSystem, root: str, group: SegmentGroup) -> None:
    """Raise CorruptionError if the staged segments of a group are not those that their tasks have written, if
    a batch is damaged or out of order, or if they reach beyond the offsets of the old segments."""
    limits = [*(each.base_offset for each in group.new[1:]), group.end]
    records: int | None = 0
    for segment, limit in zip(group.new, limits, strict=True):
        check_staged_files(file_system, root, segment)
        found = _check_batches(file_system, root, segment, limit)
        records = None if records is None or found is None else records + found
    if records != group.records:
        raise CorruptionError(
            "record_count",
            f"{records} records from offset {group.start} on, and {group.records} were written",
            path=os.path.join(root, group.new[0].name),
        )


def _check_batches(
    file_system: FileSystem, root: str, segment: StagedSegment, limit: int
) -> int | None:
    """Check the batches of a segment; return how many records they hold, None if they do not say it."""
    path = os.path.join(root, segment.name)
    records: int | None = 0

    def count(headers: memoryview, held: int, _: Window) -> None:
        nonlocal records
        counts = headers[Row.RECORD_COUNT : held * ROW_WIDTH : ROW_WIDTH].tolist()
        records = None if records is None or min(counts) < 0 else records + sum(counts)

    file = file_system.open_readable(path)
    try:
        found = scan_segment(
            file,
            segment.base_offset,
            IndexLimits(),
            file.size(),
            check=Check.CRC | Check.ORDER,
            expected_offset=segment.base_offset,
            seen=count,
        )
    finally:
        file.close()
    if not found.is_whole:
        raise found.pause.error().located(path=path)
    if found.next_offset > limit or found.overflows:
        raise CorruptionError(
            "offset_range",
            f"reaches offset {found.next_offset - 1}, and must end below {limit}",
            path=path,
        )
    if FileKind.TXN_INDEX in segment.files:
        txns = os.path.join(root, segment.file_name(FileKind.TXN_INDEX))
        read_entries(file_system, txns, segment.base_offset)  # raises if it is damaged
    return records
