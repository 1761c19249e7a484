"""Reads planned ranges into columns, also while a broker works on the partitions.

A plan's offsets are its word, its positions are hints. A position is believed where a batch lies there, with
its CRC, that starts at or below the offset that is wanted. Reading ends where an offset at or behind the end
is seen, not where the plan says that the bytes end. So a segment that was compacted or cut since costs a
search, never a wrong row; and where one is gone, the folder is listed anew and the rest is planned again,
from the offset that was reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError, StratalogError, UsageError
from stratalog.inspect.file.check import check_segment
from stratalog.inspect.file.count import next_offset
from stratalog.inspect.file.decode import decode_file
from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, SkippedDamage, find_resumption
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.sources import PartitionSource, relisted, vanished
from stratalog.inspect.range.plan import LogRange, SegmentSlice, plan_slices
from stratalog.records.columns import (
    DecodedColumns,
    KeptRecords,
    RegionDecoder,
    Selection,
    WalkEnd,
)
from stratalog.records.layout import BATCH_HEADER_SIZE, INT64_MAX, Ending, Reason
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.segment.batch_at import is_batch_at, offsets_behind
from stratalog.storage.segment.log_file import LogFile, open_log_file
from stratalog.storage.segment.walk import FileEnd, classified_end
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.inspect.file.misplaced import MisplacedBatch

__all__ = ["LostOffsets", "RangeReader"]

#: How much more is looked at where a slice goes on behind its planned end.
_MORE_BYTES: Final = 1 << 20
#: How often the rest is planned anew without that an offset more was read: then the error stands.
_PLANS_MAX: Final = 3


class LostOffsets(NamedTuple):
    """Offsets of a range that were there when it was planned, and are not any more: retention deleted
    them, or the log was cut. What compaction leaves out is not lost."""

    name: str
    start: int
    end: int


class RangeReader:
    """One run over ranges: what it met stands in it afterwards."""

    def __init__(
        self,
        selection: Selection,
        file_system: FileSystem | None = None,
        on_damage: OnDamagedBatch = OnDamagedBatch.FAIL,
    ) -> None:
        if selection.views:
            raise UsageError("ranges are read without views: leave views out")
        self.selection = selection
        self.file_system = file_system or OsFileSystem()
        self._decoder: RegionDecoder | None = None
        self._keep: KeptRecords | None = None
        #: Records to keep that were left out because they have no value.
        self.tombstones = 0
        #: Bytes of log that were gone through.
        self.bytes_read = 0
        self.on_damage = on_damage
        #: What was left out because it is damaged; with ``fail`` the last one is where a read failed.
        self.skipped: list[SkippedDamage] = []
        #: What was planned and is gone, so that the caller may decide whether that is an error.
        self.vanished: list[LostOffsets] = []

    def read(self, wanted: LogRange) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """The columns of one range, file by file. CorruptionError where a file is damaged, after what
        stands before the damage."""
        try:
            yield from _Reading(self, wanted).run()
        except BaseException:
            self._use_decoder(None)  # it may hold rows that nobody took: they are read again
            raise

    def read_kept(
        self, wanted: LogRange, keep: KeptRecords
    ) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """Read one range as :meth:`read` does, of its records only those to keep."""
        self._keep = keep
        try:
            yield from self.read(wanted)
        finally:
            self._keep = None
            self._use_decoder(None)

    def decoder_for(self, wanted: LogRange, start: int) -> RegionDecoder:
        """The decoder with the bounds of a range: the one there is, where they are the same as before."""
        selection = replace(
            self.selection,
            start=start,
            end=wanted.end,
            start_time=wanted.start_time,
            end_time=wanted.end_time,
            aborted=tuple(txn[:3] for txn in wanted.aborted or ()),
            keep=self._keep,
        )
        decoder = self._decoder
        if decoder is None or decoder.selection != selection:
            decoder = RegionDecoder(selection)
            self._use_decoder(decoder)
        return decoder

    def _use_decoder(self, decoder: RegionDecoder | None) -> None:
        if self._decoder is not None:
            self.tombstones += self._decoder.tombstones
        self._decoder = decoder

    def note(self, size_bytes: int) -> None:
        self.bytes_read += size_bytes


class _Reading:
    """One range on its way. Everything below ``reached`` is done."""

    def __init__(self, reader: RangeReader, wanted: LogRange) -> None:
        self._reader = reader
        self._files = reader.file_system
        self._wanted = wanted
        self._source = _source_of(wanted)
        self._reached = wanted.start
        #: From where on records are taken: what was planned, or what was reached before the last plan.
        self._start = wanted.start
        self._slices = deque(wanted.slices)
        #: What is behind the last slice is known to hold nothing that is wanted.
        self._end = wanted.slices[-1].end if wanted.slices else wanted.start
        self._trusts_positions = True
        #: The offset that was expected where the last file came to its end.
        self._expected = 0
        #: Damage that was passed: met again, it is not passed once more.
        self._passed: set[tuple[str, int]] = set()
        #: What was reached when the partition was last planned anew, and how often that was so.
        self._planned_at = -1
        self._plans = 0

    def run(self) -> Iterator[tuple[LogFile, DecodedColumns]]:
        while True:
            while self._slices:
                yield from self._slice(self._slices.popleft())
            if self._reached >= self._end:
                return
            # It ended early. Whether that is a gap that compaction left, or a loss, the log itself tells.
            if self._planned_at == self._reached:
                self._tell_loss()
                return
            self._plan_again(None)

    def _slice(self, part: SegmentSlice) -> Iterator[tuple[LogFile, DecodedColumns]]:
        if part.end <= self._reached:
            return
        with ExitStack() as opened:
            try:
                log_file = opened.enter_context(open_log_file(part.path, self._files))
            except StorageError as error:
                if not vanished(self._source, error):
                    raise
                self._plan_again(error)
                return
            position = self._position(part, log_file)
            pause = yield from self._file(part, log_file, position)
        if pause.ending == Ending.END:
            return
        damage = FileEnd(part.path, log_file.size, pause).error()
        self._source = self._listed()
        if pause.ending == Ending.INCOMPLETE and self._source.segments[-1:] == (part.path,):
            return  # the end of the log, which was cut: what is missing will be told
        if self._is_damaged(part.path):
            self._pass_damage(part, pause, damage)
            return
        self._trusts_positions = False
        self._plan_again(damage)

    def _file(
        self, part: SegmentSlice, log_file: LogFile, position: int
    ) -> Generator[tuple[LogFile, DecodedColumns], None, WalkEnd]:
        """Read on until the slice's last offset was seen; END then, else how the file ended."""
        decoder = self._reader.decoder_for(self._wanted, self._start)
        expected = None
        limit, more = min(part.end_position, log_file.size), _MORE_BYTES
        while True:
            log_file.file.read_ahead(position, limit - position + BATCH_HEADER_SIZE)
            misplaced = self._misplaced(part, log_file, position, limit, expected)
            part_file = log_file.up_to(limit if misplaced is None else misplaced.position)
            for pause in decode_file(
                part_file,
                decoder,
                start=position,
                expected_offset=expected,
                below=part.next_offset,
                classifies=False,  # what lies beyond the slice is of no interest
            ):
                self._reader.note(pause.position - position)
                position = pause.position
                if decoder.rows:
                    yield log_file, decoder.take()
            expected = decoder.expected_offset
            self._expected = expected
            self._reached = max(self._reached, next_offset(log_file, expected, position))
            if pause.ending == Ending.CORRUPT:
                return pause
            if misplaced is not None and position == misplaced.position:
                position, expected = self._pass_misplaced(part, misplaced)
                limit = max(limit, position)
                if self._reached >= part.end:
                    return WalkEnd(position, Ending.END)
                continue
            behind = offsets_behind(log_file, position, part.next_offset)
            # An offset lies outside of the CRC: one that is too high would hide what follows it.
            if behind.last < expected:
                return WalkEnd(position, Ending.CORRUPT, Reason.OFFSET_ORDER)
            if self._reached >= part.end:
                return WalkEnd(position, Ending.END)
            if behind.first >= part.end and self._is_sound(log_file, position):
                return WalkEnd(position, Ending.END)  # the rest of the slice is compacted away
            if limit >= log_file.size:
                return classified_end(log_file, pause)
            limit, more = min(position + more, log_file.size), 2 * more

    def _misplaced(
        self, part: SegmentSlice, log_file: LogFile, position: int, limit: int, expected: int | None
    ) -> MisplacedBatch | None:
        """Find the next batch that is left out because its offset alone is wrong."""
        if self._reader.on_damage is OnDamagedBatch.FAIL:
            return None
        from stratalog.inspect.file.misplaced import find_misplaced

        first = (log_file.base_offset or 0) if expected is None else expected
        return find_misplaced(log_file, position, limit, first, part.next_offset)

    def _pass_misplaced(self, part: SegmentSlice, misplaced: MisplacedBatch) -> tuple[int, int]:
        """Go on after such a batch, and say where."""
        resume = misplaced.resume_offset
        if misplaced.expected < part.end and resume > part.start:
            self._reader.skipped.append(misplaced.skipped)
        self._expected = resume
        self._reached = max(self._reached, resume)
        return misplaced.end_position, resume

    def _is_sound(self, log_file: LogFile, position: int) -> bool:
        """Whether what lies at a position is a batch, or the end of the file. Its size and its offset prove
        nothing: after a batch whose own size is wrong, any bytes may look like a header."""
        if position >= log_file.size:
            return True
        return is_batch_at(log_file, position, INT64_MAX, self._reader.selection.max_batch_bytes)

    def _position(self, part: SegmentSlice, log_file: LogFile) -> int:
        """Where the slice begins in the file as it is now."""
        if part.position == 0 or log_file.base_offset is None or log_file.is_v07:
            return 0
        start = max(part.start, self._reached)
        if not self._trusts_positions:
            return 0  # what was read from there was damaged: perhaps it was no batch at all
        max_batch_bytes = self._reader.selection.max_batch_bytes
        # A value may hold a batch, too. In the file that was planned none was taken for one.
        is_same = log_file.size == part.file_size or (
            part.next_offset is None and log_file.size > part.file_size
        )
        if is_same and is_batch_at(log_file, part.position, start, max_batch_bytes):
            return part.position
        span = SegmentSpan(part.path, log_file.base_offset, None)
        try:
            with SegmentSearch(span, self._files) as search:
                position = search.position_before(start)
        except StorageError as error:
            if not vanished(self._source, error):
                raise
            return 0  # what is open can still be read
        if position and is_batch_at(log_file, position, start, max_batch_bytes):
            return position
        return 0

    def _plan_again(self, error: StratalogError | None) -> None:
        """Look at the partition as it is now, and plan what is left. The same error once more, without
        that anything was read in between, is raised."""
        if self._planned_at < self._reached:
            self._planned_at, self._plans = self._reached, 0
        self._plans += 1
        most = LISTINGS_MAX if isinstance(error, StorageError) else _PLANS_MAX
        if error is not None and self._plans > most:
            raise error
        wanted = self._wanted
        self._source = self._listed()
        self._pass_deleted()
        self._start = self._reached
        try:
            slices = plan_slices(
                self._source,
                self._reached,
                self._end,
                wanted.start_time,
                self._files,
                self._ends_cache(),
            )
        except StorageError as failure:
            if not vanished(self._source, failure):
                raise
            self._plan_again(failure)
            return
        self._slices = deque(slices)

    def _listed(self) -> PartitionSource:
        return relisted(self._source, self._files) if self._source.is_listed else self._source

    def _is_damaged(self, path: str) -> bool:
        """Whether the segment of this name, as it is now, is damaged. What was read before may have been
        two files, one put in the place of the other meanwhile, or no batch to begin with."""
        for span in segment_spans(self._source.segments):
            if span.path == path:
                try:
                    end = check_segment(span, self._files, self._reader.selection)
                except StorageError as error:
                    if not vanished(self._source, error):
                        raise
                    return False
                return end.ending != Ending.END
        return False

    def _pass_damage(self, part: SegmentSlice, pause: WalkEnd, damage: CorruptionError) -> None:
        """Go on at the next intact batch of the slice, or raise."""
        span = SegmentSpan(part.path, None, part.next_offset)
        with open_log_file(part.path, self._files) as log_file:
            found = find_resumption(log_file, span, pause, self._expected)
        if found.skipped.start_offset < part.end:
            self._reader.skipped.append(found.skipped)
        place = (part.path, pause.position)
        if self._reader.on_damage is OnDamagedBatch.FAIL or place in self._passed:
            raise damage
        self._passed.add(place)
        resume = found.skipped.resume_offset
        if found.position is None or resume is None or resume >= part.end:
            self._reached = max(self._reached, part.end)
            return
        start = max(part.start, resume)
        self._slices.appendleft(
            part._replace(start=start, position=found.position, file_size=log_file.size)
        )

    def _ends_cache(self) -> EndsCache:
        is_skipping = self._reader.on_damage is OnDamagedBatch.SKIP
        return EndsCache(self._files, skips_damage=is_skipping)

    def _pass_deleted(self) -> None:
        """Go on behind what retention deleted."""
        first = self._end
        for span in segment_spans(self._source.segments[:1]):
            first = min(span.base_offset or 0, first)
        if first > self._reached:
            self._lose(first)

    def _tell_loss(self) -> None:
        """Where the log ends before the range does, it was cut; or it goes on, and nobody can read it."""
        ends = self._ends_cache().ends_of(self._source)
        if ends.end < self._end:
            if ends.damage is not None:
                raise ends.damage
            self._lose(self._end)

    def _lose(self, end: int) -> None:
        self._reader.vanished.append(LostOffsets(self._wanted.name, self._reached, end))
        self._reached = end


def _source_of(wanted: LogRange) -> PartitionSource:
    topic_partition = None
    if wanted.topic is not None and wanted.partition is not None:
        topic_partition = TopicPartition(wanted.topic, wanted.partition)
    return PartitionSource(
        folder=wanted.folder,
        topic_partition=topic_partition,
        segments=tuple(each.path for each in wanted.slices),
        is_listed=wanted.is_listed,
    )
