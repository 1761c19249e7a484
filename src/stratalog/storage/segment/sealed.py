"""A segment that will not be written again: opened when it is first looked into, and checked then."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.closed_file import ClosedFile
from stratalog.storage.files.filesystem import FileSystem, ReadableFile
from stratalog.storage.names import FileKind
from stratalog.storage.segment.index_check import index_is_sane
from stratalog.storage.segment.scan import rebuild_index
from stratalog.storage.segment.segment import Segment, check_last_entry, learn_times, read_aborted
from stratalog.storage.segment.sparse_index import IndexLimits, SparseIndex
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["SealedSegment"]


class SealedSegment(Segment):
    """A segment that will not be written again. Its files are opened when they are first needed."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        size_bytes: int,
        *,
        log: ReadableFile | None = None,
        swapped: Collection[FileKind] = (),
    ) -> None:
        super().__init__(file_system, folder, base_offset, limits, size_bytes, swapped)
        self._log = log
        self._index: SparseIndex | None = None
        self._aborted: tuple[AbortedTxn, ...] | None = None
        #: How large the data file is where another's may take its place at any time; None where it cannot.
        self.listed_bytes: int | None = None
        #: Asked for its aborted transactions where there is no index of any kind.
        self.find_aborted: Callable[[int], tuple[AbortedTxn, ...]] | None = None
        #: Whether its index was made from its batches just now, and knows all that they say.
        self.is_walked = False

    @property
    def log(self) -> ReadableFile:
        if self._log is None:
            self._log = self._open()
        return self._log

    def _open(self) -> ReadableFile:
        log = self._file_system.open_readable(self.path(FileKind.LOG))
        if self.listed_bytes not in (None, log.size()):
            log.close()
            raise StorageError(
                "replaced while it was read", path=self.path(FileKind.LOG), errno=errno.ENOENT
            )
        return log

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = self._index = self._load_index()
        return index

    def take_end(self, size_bytes: int, index: SparseIndex, aborted: Iterable[AbortedTxn]) -> None:
        """Go by what a walk over the data has found, not by the files' own word."""
        self.size_bytes = size_bytes
        self._index = index
        self._aborted = tuple(aborted)
        self.is_walked = True

    def _load_index(self) -> SparseIndex:
        self._check_open()
        try:
            offsets = self._map(FileKind.OFFSET_INDEX)
            times = self._map(FileKind.TIME_INDEX)
            if index_is_sane(offsets, times, self.size_bytes):
                index = SparseIndex(self.base_offset, self.limits, offsets, times, guarded=True)
                with self._opened() as log:
                    check_last_entry(log, index, self.size_bytes)
                    # Behind the last entry: times that fell, or entries that were cut off.
                    learn_times(log, index, self.size_bytes)
                return index
        except (StorageError, BufferError, CorruptionError):
            pass  # missing, lost or nonsense: whatever it is, the log knows better
        with self._opened() as log:
            return rebuild_index(log, self.base_offset, self.limits, self.size_bytes)

    @contextmanager
    def _opened(self) -> Iterator[ReadableFile]:
        """The data file for a look into it: retention asks all segments, and shall not keep them open."""
        if self._log is not None:
            yield self._log
            return
        log = self._open()
        try:
            yield log
        finally:
            log.close()

    def _map(self, kind: FileKind) -> memoryview:
        file = self._file_system.open_readable(self.path(kind))
        try:
            return file.map(0, file.size())
        finally:
            file.close()

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        if self._aborted is None:
            self._check_open()
            if self.find_aborted is not None and self.lacks_indexes:
                self._aborted = self.find_aborted(self.base_offset)
            else:
                self._aborted = read_aborted(self._file_system, self.path(FileKind.TXN_INDEX), self)
        return self._aborted

    @property
    def lacks_indexes(self) -> bool:
        """Whether there is neither index: only the data was kept, and a broker would make both anew. That
        of offsets alone tells nothing: where nothing was aborted, there is no other."""
        kinds = (FileKind.OFFSET_INDEX, FileKind.TXN_INDEX)
        return all(self._file_system.stat(self.path(kind)) is None for kind in kinds)

    def _check_open(self) -> None:
        """Without this, a closed segment would open its files again, and nobody would close them."""
        if isinstance(self._log, ClosedFile):
            self._log.refuse()

    def close(self) -> None:
        self._log = ClosedFile(self.path(FileKind.LOG))
        self._index = None
