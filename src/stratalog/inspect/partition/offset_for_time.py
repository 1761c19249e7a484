"""The first offset of a time in files that any process may write to: exact, and from few bytes.

The same for a log that is open is ``storage.views.time_lookup``, which says what differs.
"""

from __future__ import annotations

from stratalog.errors import CorruptionError
from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.skip_by_time import ends_before
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.ends import EndsCache, partition_ends
from stratalog.inspect.partition.sources import PartitionSource, with_fresh_listing
from stratalog.records.layout import INT64_MAX
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.segment.batch_at import first_of_time as first_of_time_in
from stratalog.storage.segment.find import find_time

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
                data = search.file.read(place.position, place.size_bytes)
                found = first_of_time_in(data, place, time_ms, start)
                if found is not None:
                    return found.offset
        except CorruptionError as error:
            raise error.located(path=span.path) from None
    return None
