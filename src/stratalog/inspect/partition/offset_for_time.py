"""The first offset of a time, as Kafka's own look-up has it: exact, and from few bytes."""

from __future__ import annotations

from stratalog.errors import CorruptionError
from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.skip_by_time import ends_before
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.ends import EndsCache, partition_ends
from stratalog.inspect.partition.sources import PartitionSource, with_fresh_listing
from stratalog.records.columns import RegionDecoder, Selection
from stratalog.records.layout import INT64_MAX, Check, Column, Ending
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.segment.find import BatchPlace, find_time

__all__ = ["first_of_time", "offset_for_time"]


def offset_for_time(
    source: PartitionSource, time_ms: int, file_system: FileSystem | None = None
) -> int | None:
    """The offset of the first record whose timestamp is ``time_ms`` or later; None where there is none.
    Control records count, as they do to Kafka. Nothing below the log's start does, nor anything of a
    commit that is under way. CorruptionError where there is none before damage: there may be one behind."""
    files = file_system or OsFileSystem()
    found = with_fresh_listing(source, files, lambda each: first_of_time(each, time_ms, files))
    if found is None and (damage := partition_ends(source, files).damage) is not None:
        raise damage
    return found


def first_of_time(
    source: PartitionSource, time_ms: int, files: FileSystem, *, start: int = 0
) -> int | None:
    """The same among the offsets from ``start`` on, in the segments as they are listed."""
    if time_ms > INT64_MAX:
        return None
    start = max(start, source.log_start)
    for span in segment_spans(source.segments):
        if span.next_offset is not None and span.next_offset <= start:
            continue
        if ends_before(span, time_ms, files):
            continue
        limit = None
        if span.is_last:  # what its writer is still at is the end of the log, and none of it
            tail = EndsCache(files).tail(source)
            limit = None if tail is None else tail.position
        found = _in_segment(span, time_ms, files, start, limit)
        if found is not None:
            end = source.visible_end
            return found if end is None or found < end else None
    return None


def _in_segment(
    span: SegmentSpan, time_ms: int, files: FileSystem, start: int, limit: int | None
) -> int | None:
    with SegmentSearch(span, files) as search:
        if search.is_v07:
            return None  # no record of these has a time
        early = search.batch_before_time(time_ms)
        position = 0 if early is None else early.end_position
        if start > search.base_offset:
            position = max(position, search.position_before(start))
        end = search.size if limit is None else limit
        try:
            for place in find_time(search.file, position, end, time_ms):
                found = _in_batch(search, place, time_ms, start)
                if found is not None:
                    return found
        except CorruptionError as error:
            raise error.located(path=span.path) from None
    return None


def _in_batch(search: SegmentSearch, place: BatchPlace, time_ms: int, start: int) -> int | None:
    """The first offset of a batch with this time or a later one."""
    decoder = RegionDecoder(
        Selection(
            columns=Column.OFFSET,
            start=start,
            start_time=time_ms,
            check=Check.INCLUDE_CONTROL,
            max_batch_bytes=place.size_bytes,
        )
    )
    data = search.file.read(place.position, place.size_bytes)
    pause = decoder.decode(data, 0, len(data), position_base=place.position)
    if pause.ending != Ending.END:
        raise pause.error().located(position=place.position)
    if not decoder.rows:
        return None
    return memoryview(decoder.take().buffers[Column.OFFSET][0]).cast("B").cast("q")[0]
