"""Read partitions one after the other into columns, also while a broker works on them.

A broker deletes and replaces segments at any time. A file that is open is read to its end. If the next
segment is gone, the folder is listed again, and reading continues after the offset that was reached. If a
segment was replaced after the end had been determined, a newer record of a removed key may follow that end:
then the end is determined again, and reading continues (see ``listed_files``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.file.count import next_offset
from stratalog.inspect.file.decode import decode_file
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, SkippedDamage, find_resumption
from stratalog.inspect.file.span import SegmentSpan
from stratalog.inspect.partition.listed_files import ListedFiles
from stratalog.inspect.partition.sources import (
    PartitionSource,
    relisted,
    vanished,
    with_fresh_listing,
)
from stratalog.inspect.range.bounds import Bounds, bounds_of, part_within, spans_within
from stratalog.inspect.range.offset_range import OffsetRange
from stratalog.records.columns import (
    DecodedColumns,
    KeptRecords,
    RegionDecoder,
    Selection,
    WalkEnd,
)
from stratalog.records.layout import INT32_MAX, INT64_MAX, Ending, Reason
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.segment.batch_at import offsets_behind
from stratalog.storage.segment.log_file import LogFile, open_log_file
from stratalog.storage.segment.walk import FileEnd, classified_end
from stratalog.types import Progress

if TYPE_CHECKING:
    from stratalog.inspect.file.misplaced import MisplacedBatch

__all__ = ["PartitionReader", "StartBeyondEnd"]


class StartBeyondEnd(NamedTuple):
    """A partition that was to be read from an offset beyond its end."""

    name: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.name} ends at offset {self.end}, before {self.start}: no records were read"


@dataclass(slots=True)
class _Run:
    """How far one partition was read: up to which offset, and whether that is the end of its last segment."""

    reached: int
    has_end: bool


class PartitionReader:
    """One run over partitions: what it met stands in it afterwards."""

    def __init__(
        self,
        selection: Selection,
        wanted: OffsetRange,
        file_system: FileSystem | None,
        progress: Progress,
        on_damage: OnDamagedBatch = OnDamagedBatch.FAIL,
        *,
        is_committed: bool = False,
    ) -> None:
        self._on_damage = on_damage
        self._is_committed = is_committed
        self._aborted: tuple[tuple[int, int, int], ...] = ()
        self._selection = selection
        self._wanted = wanted
        self._file_system = file_system
        self._progress = progress
        self._decoder: RegionDecoder | None = None
        self._keep: KeptRecords | None = None
        self._skipped_before = 0
        #: Records to keep that were left out because they have no value.
        self.tombstones = 0
        self.bytes_read = 0
        self.ends: list[FileEnd] = []
        #: What was left out because it is damaged; with ``fail`` the last one is where a read failed.
        self.skipped: list[SkippedDamage] = []
        #: Partitions that end before the offset from which on they were to be read.
        self.beyond: list[StartBeyondEnd] = []
        #: Files whose records were gone before they could be read.
        self.vanished: list[str] = []

    @property
    def skipped_batches(self) -> int:
        """Batches that the bounds, or the records to keep, left out by their header alone."""
        held = 0 if self._decoder is None else self._decoder.skipped_batches
        return self._skipped_before + held

    def read_kept(
        self, source: PartitionSource, keep: KeptRecords
    ) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """Read one partition as :meth:`read` does, of its records only those to keep."""
        self._keep = keep
        try:
            yield from self.read(source)
        finally:
            self._keep = None
            self._use_decoder(None)

    def read(self, source: PartitionSource) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """The columns of one partition, file by file. CorruptionError where a file is damaged, after what
        stands before the damage; a torn tail of the last segment is none."""
        files = self._file_system or OsFileSystem()
        wanted = with_fresh_listing(
            source, files, lambda each: bounds_of(each, self._wanted, self._file_system)
        )
        run = _Run(source.log_start, has_end=not source.segments)
        bounds = wanted
        for look in count():
            with ListedFiles(source, files) as listed:
                self._note_gone(source, listed.source, bounds)
                source = listed.source
                if self._is_committed:
                    bounds = self._committed(source, bounds)
                    if look < LISTINGS_MAX and not listed.is_current():
                        bounds = replace(bounds, end=wanted.end)
                        continue  # the end may be that of old and new files together
                yield from self._read_listed(listed, bounds, run)
            if not listed.is_replaced:
                break
            resume = run.reached if bounds.end is None else min(run.reached, bounds.end)
            bounds = replace(wanted, start=max(wanted.start or 0, resume))
            source = relisted(source, files)
        is_short = wanted.start is not None and wanted.start > run.reached
        if is_short and run.has_end and self._wanted.is_absolute:
            self.beyond.append(StartBeyondEnd(source.name, wanted.start or 0, run.reached))

    def _read_listed(
        self, listed: ListedFiles, bounds: Bounds, run: _Run
    ) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """Read what a listing found, and note in ``run`` how far that went."""
        source = listed.source
        spans = deque(spans_within(source, bounds, self._file_system))
        missed: Counter[str] = Counter()
        while spans:
            span = spans.popleft()
            with ExitStack() as opened:
                try:
                    log_file = opened.enter_context(open_log_file(span.path, self._file_system))
                except StorageError as error:
                    if not vanished(source, error):
                        raise
                    source = listed.relist()
                    bounds = _behind(bounds, span, run.reached)
                    spans = self._go_on(source, bounds, span, missed)
                    continue
                listed.note_opened(log_file)
                self._forget_end(span.path)
                start, limit = part_within(span, bounds, log_file.size, self._file_system)
                decoder = self._decoder_for(bounds)
                expected = None
                is_last = span.path == source.segments[-1]
                excess = source.clean_excess(self._file_system) if is_last else None
                below = span.next_offset if excess is None else excess.expected
                while True:
                    misplaced = self._misplaced(log_file, start, limit, expected, below)
                    stop = limit if misplaced is None else misplaced.position
                    yield from self._file(log_file, decoder, start, stop, expected, below)
                    end = self.ends[-1]
                    if misplaced is not None and end.is_clean:
                        self._skip(misplaced.skipped)
                        self.ends.pop()
                        start, limit = misplaced.end_position, log_file.size
                        expected = misplaced.resume_offset
                        continue
                    if excess is not None:
                        end = self.ends[-1] = excess.applied_to(end)
                    is_torn = is_last and end.pause.ending == Ending.INCOMPLETE
                    if end.is_clean or is_torn:
                        break
                    expected = decoder.expected_offset
                    if excess is not None and end.pause.position == excess.position:
                        found = excess.resumption(log_file)
                    else:
                        found = find_resumption(log_file, span, end.pause, expected)
                    if self._on_damage is OnDamagedBatch.FAIL or found.position is None:
                        break
                    self._skip(found.skipped)
                    self.ends.pop()
                    start, limit = found.position, log_file.size
            run.reached = max(
                run.reached, next_offset(log_file, decoder.expected_offset, end.pause.position)
            )
            run.has_end = is_last
            if end.pause.reason == Reason.OFFSET_ORDER and source.is_listed:
                fresh = relisted(source, self._file_system)
                if fresh.segments != source.segments:
                    # Compaction put one segment in the place of several: it may reach further than the old
                    # listing says.
                    source, bounds = listed.relist(), _behind(bounds, span, run.reached)
                    spans = deque(spans_within(source, bounds, self._file_system))
                    self.ends.pop()
                    continue
            if not end.is_clean and not is_torn:
                if _is_hidden(source, end.pause, decoder.expected_offset):
                    return
                self._skip(found.skipped)
                if self._on_damage is OnDamagedBatch.FAIL:
                    raise end.error()

    def _forget_end(self, path: str) -> None:
        """Forget how the last file ended if it is read again, further."""
        if self.ends and self.ends[-1].path == path:
            self.ends.pop()

    def _skip(self, skipped: SkippedDamage) -> None:
        if skipped not in self.skipped:
            self.skipped.append(skipped)

    def _misplaced(
        self, log_file: LogFile, start: int, limit: int, expected: int | None, below: int | None
    ) -> MisplacedBatch | None:
        """Find the next batch that is left out because its offset alone is wrong."""
        if self._on_damage is OnDamagedBatch.FAIL:
            return None
        from stratalog.inspect.file.misplaced import find_misplaced

        first = (log_file.base_offset or 0) if expected is None else expected
        return find_misplaced(log_file, start, limit, first, below)

    def _committed(self, source: PartitionSource, bounds: Bounds) -> Bounds:
        """The bounds of what is committed; what was aborted within them is left out from now on."""
        # Only now: most reads need nothing of this.
        from stratalog.inspect.partition.ends import EndsCache
        from stratalog.inspect.range.plan import aborted_within

        files = self._file_system or OsFileSystem()
        cache = EndsCache(files)
        ends = cache.ends_of(source, stable=True)
        stable = ends.end if ends.stable is None else ends.stable
        end = stable if bounds.end is None else min(bounds.end, stable)
        if ends.damage is not None:
            end = INT64_MAX if bounds.end is None else bounds.end  # reading says what is wrong
        found = aborted_within(source, bounds.start or 0, end, files, cache)
        self._aborted = tuple(txn[:3] for txn in found)
        return replace(bounds, end=end)

    def _go_on(
        self, source: PartitionSource, bounds: Bounds, gone: SegmentSpan, missed: Counter[str]
    ) -> deque[SegmentSpan]:
        """What is left to read where a segment vanished. Retention deleted it, and its records with it;
        or compaction did, and another segment has what is left of them."""
        spans = deque(spans_within(source, bounds, self._file_system))
        missed[gone.path] += 1
        if missed[gone.path] > LISTINGS_MAX and spans and spans[0].path == gone.path:
            spans.popleft()  # it is listed, and cannot be opened: once more would not help
        self._note_vanished(gone, spans, bounds)
        return spans

    def _note_gone(self, before: PartitionSource, now: PartitionSource, bounds: Bounds) -> None:
        """Note the first segment to be read if its records are gone since they were listed."""
        if before.segments == now.segments:
            return
        gone = next(spans_within(before, bounds, self._file_system), None)
        if gone is not None and gone.path not in now.segments:
            left = spans_within(now, bounds, self._file_system)
            self._note_vanished(gone, deque(left), _behind(bounds, gone, 0))

    def _note_vanished(self, gone: SegmentSpan, left: deque[SegmentSpan], bounds: Bounds) -> None:
        start = bounds.start or 0
        was_read = gone.next_offset is not None and gone.next_offset <= start
        if not was_read and (not left or (left[0].base_offset or 0) > start):
            self.vanished.append(gone.path)

    def _decoder_for(self, bounds: Bounds) -> RegionDecoder:
        """The decoder with these bounds: the one there is, where they are the same as before."""
        selection = replace(
            self._selection,
            start=bounds.start,
            end=bounds.end,
            start_time=bounds.start_time,
            end_time=bounds.end_time,
            aborted=self._aborted,
            keep=self._keep,
        )
        decoder = self._decoder
        if decoder is None or decoder.selection != selection:
            decoder = RegionDecoder(selection)
            self._use_decoder(decoder)
        return decoder

    def _use_decoder(self, decoder: RegionDecoder | None) -> None:
        if self._decoder is not None:
            self._skipped_before = self.skipped_batches
            self.tombstones += self._decoder.tombstones
        self._decoder = decoder

    def _file(
        self,
        log_file: LogFile,
        decoder: RegionDecoder,
        start: int,
        limit: int,
        expected: int | None,
        below: int | None,
    ) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """The batches of a file from ``start`` up to ``limit``, which is a batch's end. The next segment
        begins at ``below``."""
        done = self.bytes_read - start

        def note(position: int) -> None:
            self.bytes_read = done + position
            self._progress(self.bytes_read)

        while True:
            for pause in self._decode(log_file.up_to(limit), decoder, note, start, expected, below):
                note(pause.position)
                start = pause.position
                if decoder.rows:
                    yield log_file, decoder.take()
            expected = decoder.expected_offset
            if pause.ending == Ending.CORRUPT or limit >= log_file.size:
                break
            # An offset lies outside of the CRC: one that is too high would hide what follows.
            if offsets_behind(log_file, start, None).last >= expected:
                break
            limit = log_file.size
        self.ends.append(FileEnd(log_file.path, log_file.size, pause))

    def _decode(
        self,
        log_file: LogFile,
        decoder: RegionDecoder,
        progress: Progress,
        start: int,
        expected: int | None,
        below: int | None,
    ) -> Iterator[WalkEnd]:
        if self._selection.views:
            return _map_file(log_file, decoder, start, expected, below)
        return decode_file(
            log_file, decoder, progress, start=start, expected_offset=expected, below=below
        )


def _is_hidden(source: PartitionSource, pause: WalkEnd, reached: int) -> bool:
    """Whether damage lies behind all that is shown: there a commit was being written when its process died,
    and it will be written anew. Not where the order of offsets breaks: one that is too high, which no CRC
    covers, would pass for the end of what is shown."""
    if source.visible_end is None or pause.reason == Reason.OFFSET_ORDER:
        return False
    return reached >= source.visible_end


def _behind(bounds: Bounds, span: SegmentSpan, reached: int) -> Bounds:
    """The bounds of what is left when everything before a segment was read; perhaps more was, from one
    that had taken the place of several meanwhile."""
    return replace(bounds, start=max(bounds.start or 0, span.base_offset or 0, reached))


def _map_file(
    log_file: LogFile, decoder: RegionDecoder, at: int, expected: int | None, below: int | None
) -> Iterator[WalkEnd]:
    if log_file.size > INT32_MAX:
        raise UsageError(f"{log_file.path}: a segment of 2 GiB or more cannot be read with views")
    if expected is None:
        expected = -1 if log_file.base_offset is None else log_file.base_offset
    decoder.expect(expected, below)
    region = log_file.map()
    while True:
        if log_file.is_v07:
            pause = decoder.decode_v07(
                region, at, log_file.size, base_offset=log_file.base_offset or 0
            )
        else:
            pause = decoder.decode(region, at, log_file.size, guarded=True)
        if pause.ending == Ending.LOST:
            raise StorageError(
                f"truncated or unreadable after byte {pause.position} while it was mapped",
                path=log_file.path,
            )
        if pause.ending != Ending.FULL:
            yield classified_end(log_file.whole, pause)
            return
        yield pause
        at = pause.position
