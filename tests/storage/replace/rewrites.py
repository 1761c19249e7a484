"""New segments for old ones, written as ``.cleaned``: what a cleaner leaves before it asks for the swap."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.records.model import BatchHeader
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.scan import rebuild_index
from stratalog.storage.segment.segment import Segment, read_aborted
from stratalog.storage.segment.txn_index import encode_entry
from tests.storage.logs import headers

Keep = Callable[[BatchHeader], bool]


def everything(_: BatchHeader) -> bool:
    return True


def nothing(_: BatchHeader) -> bool:
    return False


def even(header: BatchHeader) -> bool:
    """Every second offset, and all that belongs to a transaction."""
    return header.base_offset % 2 == 0 or header.is_transactional or header.is_control


def rewrite(
    log: PartitionLog, segments: Sequence[Segment], keep: Keep = everything, at: Sequence[int] = ()
) -> list[int]:
    """Write the batches of ``segments`` that are kept as one segment, or as several that start at the offsets
    ``at``; return the base offsets."""
    files = log._state.file_system
    bases = [segments[0].base_offset, *at]
    for number, base in enumerate(bases):
        end = bases[number + 1] if number + 1 < len(bases) else 1 << 62
        data = b""
        for segment in segments:
            old = _read(log, segment)
            for header in headers(old):
                if base <= header.base_offset < end and keep(header):
                    data += old[header.position : header.end_position]
        txns = b"".join(
            encode_entry(txn)
            for segment in segments
            for txn in read_aborted(files, segment.path(FileKind.TXN_INDEX), segment)
            if base <= txn.last_offset < end
        )
        write_cleaned(log, base, data, txns)
    return bases


def write_cleaned(log: PartitionLog, base: int, data: bytes, txns: bytes = b"") -> None:
    files = log._state.file_system
    path = cleaned_path(log, base, FileKind.LOG)
    _write(files, path, data)
    file = files.open_readable(path)
    index = rebuild_index(file, base, log._state.settings.limits, len(data))
    file.close()
    index.close_times()
    _write(files, cleaned_path(log, base, FileKind.OFFSET_INDEX), bytes(index.offsets))
    _write(files, cleaned_path(log, base, FileKind.TIME_INDEX), bytes(index.times))
    if txns:
        _write(files, cleaned_path(log, base, FileKind.TXN_INDEX), txns)


def cleaned_path(log: PartitionLog, base: int, kind: FileKind) -> str:
    return f"{log.folder}/{segment_file_name(base, kind, Stage.CLEANED)}"


def _read(log: PartitionLog, segment: Segment) -> bytes:
    """The batches of a segment, from a file of our own: the log opens none for it."""
    file = log._state.file_system.open_readable(segment.path(FileKind.LOG))
    try:
        return file.read(0, segment.size_bytes)
    finally:
        file.close()


def _write(files: FileSystem, path: str, data: bytes) -> None:
    files.unlink(path)
    file = files.open_writable(path, create=True)
    if data:
        file.write_at(0, data)
    file.close()
