"""Reads partitions one after the other into columns, also while a broker works on them.

A broker deletes and replaces segments at any time. What is open is read to its end; where the next segment is
gone, the folder is listed anew and reading goes on behind the offset that was reached.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.file.count import next_offset
from stratalog.inspect.file.decode import decode_file
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, SkippedDamage, find_resumption
from stratalog.inspect.file.span import SegmentSpan
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
        bounds = with_fresh_listing(
            source, self._file_system, lambda each: bounds_of(each, self._wanted, self._file_system)
        )
        asked = bounds.start
        if self._is_committed:
            bounds = self._committed(source, bounds)
        spans = deque(spans_within(source, bounds, self._file_system))
        missed: Counter[str] = Counter()
        reached = source.log_start
        has_end = not source.segments
        while spans:
            span = spans.popleft()
            with ExitStack() as opened:
                try:
                    log_file = opened.enter_context(open_log_file(span.path, self._file_system))
                except StorageError as error:
                    if not vanished(source, error):
                        raise
                    source = relisted(source, self._file_system)
                    bounds = _behind(bounds, span, reached)
                    spans = self._go_on(source, bounds, span, missed)
                    continue
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
                        self.skipped.append(misplaced.skipped)
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
                    self.skipped.append(found.skipped)
                    self.ends.pop()
                    start, limit = found.position, log_file.size
            reached = max(
                reached, next_offset(log_file, decoder.expected_offset, end.pause.position)
            )
            has_end = is_last
            if end.pause.reason == Reason.OFFSET_ORDER and source.is_listed:
                fresh = relisted(source, self._file_system)
                if fresh.segments != source.segments:
                    # Compaction put one segment in the place of several: it may reach further than the old
                    # listing says.
                    source, bounds = fresh, _behind(bounds, span, reached)
                    spans = deque(spans_within(source, bounds, self._file_system))
                    self.ends.pop()
                    continue
            if not end.is_clean and not is_torn:
                if _is_hidden(source, end.pause, decoder.expected_offset):
                    return
                self.skipped.append(found.skipped)
                if self._on_damage is OnDamagedBatch.FAIL:
                    raise end.error()
        if has_end and asked is not None and asked > reached and self._wanted.is_absolute:
            self.beyond.append(StartBeyondEnd(source.name, asked, reached))

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
        start = bounds.start or 0
        was_read = gone.next_offset is not None and gone.next_offset <= start
        if not was_read and (not spans or (spans[0].base_offset or 0) > start):
            self.vanished.append(gone.path)
        return spans

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
