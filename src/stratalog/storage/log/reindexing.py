"""Replace the index files of a sealed segment of an open log, each in one step, while others read.

An index is written and fsynced under its ``.cleaned`` name, which every load removes, and renamed. Readers
of earlier views go on with what they have mapped; the new view opens the new files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from stratalog.errors import StorageError, UsageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.state import LogState
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment
from stratalog.types import Bytes

__all__ = ["replace_index_files"]


def replace_index_files(
    state: LogState, segment: Segment, contents: Mapping[FileKind, Bytes]
) -> bool:
    """Put other index files in the place of a sealed segment's. Return False, and change nothing, if the log
    does not have the segment any more."""
    state.guard.check()
    if not isinstance(segment, SealedSegment):
        raise UsageError("the active segment writes its own indexes: roll it first")
    base = segment.base_offset
    try:
        for kind, data in contents.items():
            _write(state.file_system, _path(state, base, kind, Stage.CLEANED), data)
        with state.flush_lock, state.guard.changing():
            if not state.view.segments.has_run([segment]):
                return False
            for kind in contents:
                state.file_system.rename(
                    _path(state, base, kind, Stage.CLEANED), _path(state, base, kind, Stage.LIVE)
                )
            state.guard.synced(state.sync_folder)
            stat = state.file_system.stat(_path(state, base, FileKind.LOG, Stage.LIVE))
            fresh = SealedSegment(
                state.file_system,
                state.folder,
                base,
                segment.limits,
                segment.size_bytes,
                listed=stat,
            )
            state.replace_segments([segment], [fresh])
    finally:
        with suppress(StorageError):
            for kind in contents:
                state.file_system.unlink(_path(state, base, kind, Stage.CLEANED))
    return True


def _write(file_system: FileSystem, path: str, data: Bytes) -> None:
    file_system.unlink(path)
    file = file_system.open_writable(path, create=True)
    try:
        if data:
            file.write_at(0, data)
        file.sync()
    finally:
        file.close()


def _path(state: LogState, base_offset: int, kind: FileKind, stage: Stage) -> str:
    return os.path.join(state.folder, segment_file_name(base_offset, kind, stage))
