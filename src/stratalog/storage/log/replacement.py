"""Replace sealed segments of an open log by rewritten ones, while others append and read.

The caller writes the new segments as ``.cleaned``, without the lock. They are checked and fsynced without the
lock, too. Under it are only the renames (``replace/swap``) and the new view.

Readers that hold an earlier view finish on the old files, which are opened before they lose their names. That
costs one descriptor for each replaced segment, for as long as a reader holds such a view. The alternative, to
find the old files by their ``.deleted`` names, needs no descriptor. But it ends when the files are removed or
when a second swap takes those names, and a reader may be slower than either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import ROW_WIDTH, Check, Row
from stratalog.storage.files.filesystem import FileStat
from stratalog.storage.log.state import LogState
from stratalog.storage.names import SEGMENT_KINDS, FileKind, Stage, segment_file_name
from stratalog.storage.replace.folder import FolderNames
from stratalog.storage.replace.swap import Swap, plan_filler
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment, read_entries

__all__ = ["remove_cleaned", "replace_sealed"]


class _Cleaned(NamedTuple):
    """A segment that is complete as ``.cleaned``, and where its batches end."""

    base_offset: int
    stat: FileStat
    next_offset: int
    records: int = 0


def replace_sealed(
    state: LogState, old: Sequence[Segment], new: Sequence[int], records: int | None = None
) -> bool:
    """Put the ``.cleaned`` segments with the base offsets ``new`` in the place of ``old``. Return False,
    and change nothing, if the log does not have the old ones any more. ``records`` is how many the new ones
    must hold."""
    guard = state.guard
    guard.check()
    sealed = _check_request(old, new)
    if not state.view.segments.has_run(old):
        return False
    added: list[str] = []
    is_replaced = False
    try:
        cleaned = _check_cleaned(state, old, new, added)
        _check_records(cleaned, records)
        is_replaced = _swap(state, sealed, cleaned)
    finally:
        if not is_replaced:
            _remove_added(state, added)
    return is_replaced


def _swap(state: LogState, old: Sequence[SealedSegment], cleaned: Sequence[_Cleaned]) -> bool:
    guard = state.guard
    with state.flush_lock, guard.changing():
        if not state.view.segments.has_run(old):
            return False
        _check_alone(state, [each.base_offset for each in cleaned])
        for segment in old:
            segment.hold_open()
        swap = Swap(
            state.file_system,
            state.folder,
            [segment.base_offset for segment in old],
            [each.base_offset for each in cleaned],
            lambda: guard.synced(state.sync_folder),
        )
        try:
            swap.stage()
        except BaseException:
            with guard.unbroken():
                swap.unstage()
            raise
        with guard.unbroken():
            delay_ms = state.settings.config.file_delete_delay_ms
            state.removals.set_aside(swap.finish(), delay_ms)
            state.removals.set_aside(_remove_snapshots(state, swap), delay_ms)
            # Last: after an error the log has the old segments.
            state.replace_segments(old, [_sealed(state, each) for each in cleaned])
    return True


def remove_cleaned(state: LogState) -> None:
    """Remove the ``.cleaned`` files that an earlier rewrite could not remove when it failed. The caller holds
    the right to rewrite: no other one is under way."""
    entries = state.file_system.list_dir(state.folder)
    files = FolderNames.of(entry.name for entry in entries).files
    for name, file in files.items():
        if file.stage is Stage.CLEANED:
            state.file_system.unlink(os.path.join(state.folder, name))


def _check_request(old: Sequence[Segment], new: Sequence[int]) -> list[SealedSegment]:
    sealed = [segment for segment in old if isinstance(segment, SealedSegment)]
    if not sealed or len(sealed) < len(old):
        raise UsageError("only sealed segments can be replaced, and at least one of them")
    if not new or list(new) != sorted(set(new)) or new[0] != old[0].base_offset:
        raise UsageError(
            f"segments at {list(new)} cannot replace those from {old[0].base_offset} on: the first must "
            "have the same base offset, and the others follow in order"
        )
    return sealed


def _check_alone(state: LogState, new: Sequence[int]) -> None:
    """Raise UsageError if a ``.cleaned`` or ``.swap`` file exists that is not of the segments ``new``. A load
    takes a ``.swap`` above a ``.cleaned`` for one of a swap that was not decided, and removes it."""
    entries = state.file_system.list_dir(state.folder)
    files = FolderNames.of(entry.name for entry in entries).files
    for name, file in files.items():
        if file.stage in (Stage.CLEANED, Stage.SWAP) and file.offset not in new:
            raise UsageError(
                f"{os.path.join(state.folder, name)} is of another rewrite, and only one can be swapped in "
                "safely: delete its files, or swap it in before the next one is written"
            )


def _check_cleaned(
    state: LogState, old: Sequence[Segment], new: Sequence[int], added: list[str]
) -> list[_Cleaned]:
    """Check that the new segments are sound and lie within the offsets of the old, and fsync them. Put the
    paths of the files that had to be written for the swap into ``added``."""
    segments, log_end = state.view.segments, state.view.log_end
    end = segments.next_base(segments.floor(old[-1].base_offset), log_end)
    cleaned = [_check_one(state, base) for base in new]
    ends = [*new[1:], end]
    for each, limit in zip(cleaned, ends, strict=True):
        if each.next_offset > limit or each.base_offset >= end:
            raise UsageError(
                f"the new segment at {each.base_offset} reaches offset {each.next_offset - 1}, and the next "
                f"one starts at {limit}"
            )
    next_offset = max(each.next_offset for each in cleaned)
    sizes = [(segment.base_offset, segment.size_bytes) for segment in old]
    filler = plan_filler(sizes, new, next_offset)
    _check_alone(state, new)
    if filler is not None:
        cleaned.append(_write_filler(state, filler, added))
    for each in cleaned:
        if each.base_offset >= next_offset:
            _cover_indexes(state, each.base_offset, added)
        _sync_files(state, each.base_offset)
    return cleaned


def _check_records(cleaned: Sequence[_Cleaned], records: int | None) -> None:
    found = sum(each.records for each in cleaned)
    if records is not None and found != records:
        raise CorruptionError(
            "record_count", f"the new segments hold {found} records, and {records} were written"
        )


def _check_one(state: LogState, base_offset: int) -> _Cleaned:
    path = _path(state, base_offset, FileKind.LOG)
    records = 0

    def count(headers: memoryview, held: int, _: Window) -> None:
        nonlocal records
        records += sum(headers[Row.RECORD_COUNT : held * ROW_WIDTH : ROW_WIDTH])

    file = state.file_system.open_readable(path)
    try:
        found = scan_segment(
            file,
            base_offset,
            state.settings.limits,
            file.size(),
            check=Check.CRC | Check.ORDER,
            expected_offset=base_offset,
            seen=count,
        )
    finally:
        file.close()
    if not found.is_whole:
        raise found.pause.error().located(path=path)
    if found.overflows:
        raise CorruptionError(
            "offset_range", "reaches further than its indexes can say: write several segments"
        ).located(path=path)
    stat = state.file_system.stat(path)
    assert stat is not None
    txns = _path(state, base_offset, FileKind.TXN_INDEX)
    read_entries(state.file_system, txns, base_offset)  # raises if it is damaged
    return _Cleaned(base_offset, stat, found.next_offset, records)


def _write_filler(state: LogState, base_offset: int, added: list[str]) -> _Cleaned:
    """Write an empty data file as ``.cleaned``, as old as the one that it replaces."""
    file_system = state.file_system
    path = _path(state, base_offset, FileKind.LOG)
    added.append(path)
    file_system.open_writable(path, create=True).close()
    replaced = file_system.stat(_path(state, base_offset, FileKind.LOG, Stage.LIVE))
    if replaced is not None:
        file_system.set_modified(path, replaced.modified_ms)
    stat = file_system.stat(path)
    assert stat is not None
    return _Cleaned(base_offset, stat, base_offset)


def _cover_indexes(state: LogState, base_offset: int, added: list[str]) -> None:
    """Write the index files that an empty segment lacks and the old one has. A load that finishes the swap
    replaces only what has a new file: it does not delete at or above the end of the new segments."""
    for kind in SEGMENT_KINDS:
        path = _path(state, base_offset, kind)
        is_live = state.file_system.stat(_path(state, base_offset, kind, Stage.LIVE)) is not None
        if is_live and state.file_system.stat(path) is None:
            added.append(path)
            state.file_system.open_writable(path, create=True).close()


def _remove_added(state: LogState, added: Sequence[str]) -> None:
    """Remove what was written for a swap that did not happen: the caller does not know of these files. One
    that cannot be removed makes the next replacement raise an error that names it."""
    for path in added:
        with suppress(StorageError):
            state.file_system.unlink(path)


def _sync_files(state: LogState, base_offset: int) -> None:
    for kind in SEGMENT_KINDS:
        path = _path(state, base_offset, kind)
        if state.file_system.stat(path) is not None:
            file = state.file_system.open_writable(path)
            try:
                file.sync()
            finally:
                file.close()


def _sealed(state: LogState, cleaned: _Cleaned) -> SealedSegment:
    return SealedSegment(
        state.file_system,
        state.folder,
        cleaned.base_offset,
        state.settings.limits,
        cleaned.stat.size,
        listed=cleaned.stat,
    )


def _remove_snapshots(state: LogState, swap: Swap) -> list[str]:
    """Set the producer snapshots of base offsets aside that the log does not have any more, as Kafka does;
    return their paths. One that cannot be renamed, or that a crash brings back, the next load removes."""
    paths = []
    for base_offset in sorted(set(swap.old) - set(swap.new)):
        with suppress(StorageError):
            paths.append(state.snapshots.rename_deleted(base_offset))
    return [path for path in paths if path is not None]


def _path(state: LogState, base_offset: int, kind: FileKind, stage: Stage = Stage.CLEANED) -> str:
    return os.path.join(state.folder, segment_file_name(base_offset, kind, stage))
