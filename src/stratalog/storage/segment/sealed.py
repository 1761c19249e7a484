"""A segment that is not written any more: its files are opened when they are first needed.

Another segment may take its place and its file names meanwhile (``replace/swap``). A sealed segment therefore
remembers which data file it was listed or sealed with, and compares when it opens the file. Indexes have no
identity of their own here: a swap renames the data file before its indexes, so an index that was opened while
the data file still had its name belongs to that data file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.closed_file import ClosedFile
from stratalog.storage.files.filesystem import FileStat, FileSystem, ReadableFile
from stratalog.storage.names import FileKind
from stratalog.storage.segment.index_check import index_is_sane
from stratalog.storage.segment.scan import rebuild_index
from stratalog.storage.segment.segment import Segment, check_last_entry, learn_times, read_aborted
from stratalog.storage.segment.sparse_index import IndexLimits, SparseIndex
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.types import NO_TIMESTAMP

__all__ = ["SealedSegment"]


class SealedSegment(Segment):
    """A segment that is not written any more. Its files are opened when they are first needed."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        size_bytes: int,
        *,
        log: ReadableFile | None = None,
        listed: FileStat | None = None,
        swapped: Collection[FileKind] = (),
    ) -> None:
        """``log`` is the data file if it is open already; otherwise ``listed`` tells which file it is. A
        segment without either opens whatever has its name."""
        super().__init__(file_system, folder, base_offset, limits, size_bytes, swapped)
        if log is not None and listed is None and log.identity is not None:
            listed = FileStat(size_bytes, NO_TIMESTAMP, log.identity)
        self._log = log
        self._listed = listed
        self._index: SparseIndex | None = None
        self._aborted: tuple[AbortedTxn, ...] | None = None
        #: Finds the aborted transactions if the segment has no index of any kind.
        self.find_aborted: Callable[[int], tuple[AbortedTxn, ...]] | None = None
        #: Whether the index was just rebuilt from the batches, and knows all that they say.
        self.is_walked = False

    @property
    def log(self) -> ReadableFile:
        log = self._log
        if log is None:
            try:
                log = self._open()
            except StorageError:
                # Another thread may have opened it just before it was replaced; see hold_open().
                if self._log is None:
                    raise
                return self._log
            self._log = log
        return log

    def _open(self) -> ReadableFile:
        """Open the data file. Raise StorageError (ENOENT) if another has its name now."""
        log, listed = self._file_system.open_readable(self.path(FileKind.LOG)), self._listed
        if listed is None:
            return log
        try:
            if listed.identity is None or log.identity is None:
                self.check_in_place()
            elif listed.identity != log.identity or listed.size != log.size():
                raise self._replaced()
        except BaseException:
            log.close()
            raise
        return log

    @property
    def is_listed(self) -> bool:
        return self._listed is not None

    def check_in_place(self) -> None:
        """Raise StorageError (ENOENT) if the data file does not have its name any more, or if another file
        has it."""
        if self._listed is None:
            super().check_in_place()
        elif not self._listed.is_same_file(self._file_system.stat(self.path(FileKind.LOG))):
            raise self._replaced()

    def _replaced(self) -> StorageError:
        return self._gone("the segment was replaced while it was read")

    def hold_open(self) -> None:
        """Open what a reader needs and cannot find under another name. Readers that hold this segment then
        read it to the end, whatever happens to its names.

        This is one descriptor, which is closed with the last reader that holds the segment. The offset
        and time indexes need not be held: they can be rebuilt from the data.
        """
        _ = self.log
        _ = self.aborted
        found = self._file_system.stat(self.path(FileKind.LOG))
        if found is not None and self._listed is not None and self._listed.is_same_file(found):
            self._listed = found  # with its time, which a segment that was rolled does not know

    def modified_ms(self) -> int:
        found = self._file_system.stat(self.path(FileKind.LOG))
        if self._listed is not None and not self._listed.is_same_file(found):
            return self._listed.modified_ms
        return NO_TIMESTAMP if found is None else found.modified_ms

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = self._index = self._load_index()
        return index

    def take_end(self, size_bytes: int, index: SparseIndex, aborted: Iterable[AbortedTxn]) -> None:
        """Use what a walk over the data has found instead of the index files."""
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
                with self._opened(checks_names=True) as log:
                    check_last_entry(log, index, self.size_bytes)
                    # After the last entry there may be times that fell, or entries that were cut off.
                    learn_times(log, index, self.size_bytes)
                return index
        except (StorageError, BufferError, CorruptionError):
            pass  # missing, lost, nonsense or of another file: the log itself is right
        with self._opened() as log:
            return rebuild_index(log, self.base_offset, self.limits, self.size_bytes)

    @contextmanager
    def _opened(self, *, checks_names: bool = False) -> Iterator[ReadableFile]:
        """Open the data file for one look: retention asks all segments and must not keep them open.
        ``checks_names``: other files of this segment were opened by name before, and must belong to it."""
        log, is_held = self._log, True
        if log is None:
            try:
                log, is_held = self._open(), False
            except StorageError:
                log = self._log  # hold_open() may have been first
                if log is None or checks_names:
                    raise
        elif checks_names and self.is_listed:
            self.check_in_place()
        try:
            yield log
        finally:
            if not is_held:
                log.close()

    def _map(self, kind: FileKind) -> memoryview:
        file = self._file_system.open_readable(self.path(kind))
        try:
            return file.map(0, file.size())
        finally:
            file.close()

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        aborted = self._aborted
        if aborted is None:
            self._check_open()
            try:
                aborted = self._load_aborted()
            except StorageError:
                if self._aborted is None:
                    raise
                return self._aborted
            self._aborted = aborted
        return aborted

    def _load_aborted(self) -> tuple[AbortedTxn, ...]:
        if self.find_aborted is not None and self.lacks_indexes:
            return self.find_aborted(self.base_offset)
        return read_aborted(self._file_system, self.path(FileKind.TXN_INDEX), self)

    @property
    def lacks_indexes(self) -> bool:
        """Whether there is neither an offset nor a transaction index: only the data was kept, and a broker
        would rebuild both. The transaction index alone tells nothing: if nothing was aborted, there is
        none."""
        kinds = (FileKind.OFFSET_INDEX, FileKind.TXN_INDEX)
        return all(self._file_system.stat(self.path(kind)) is None for kind in kinds)

    def _check_open(self) -> None:
        """Without this, a closed segment would open its files again, and they would stay open."""
        if isinstance(self._log, ClosedFile):
            self._log.refuse()

    def close(self) -> None:
        self._log = ClosedFile(self.path(FileKind.LOG))
        self._index = None
