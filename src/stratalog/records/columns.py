"""A region of log into columns, without a Python object for each record.

:class:`RegionDecoder` drives the kernel: it walks the region, skips batches that the bounds leave out,
has compressed ones decompressed, and pauses when the columns are full or the region ends.
``arrow.py`` makes Arrow record batches of what it hands over; :func:`records_of` makes Python records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT, Decompressor
from stratalog.records.layout import (
    BATCH_SIZE_MAX_DEFAULT,
    CODEC_MASK,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    Check,
    Codec,
    Column,
    Ending,
    Reason,
    Row,
    TimestampType,
)
from stratalog.records.reasons import corruption

if TYPE_CHECKING:
    from stratalog.records.model import Record

__all__ = [
    "COLUMN_NAMES",
    "DEFAULT_COLUMNS",
    "RECORD_COLUMNS",
    "DecodedColumns",
    "KeptRecords",
    "RegionDecoder",
    "Selection",
    "WalkEnd",
    "binary_values",
    "column_mask",
    "decode_records",
    "records_of",
]

COLUMN_NAMES: Final = {str(column.name).lower(): column for column in Column}
DEFAULT_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")

_BATCH_BYTES_MAX: Final = 1 << 30  # with one log batch on top, offsets of 32 bits still reach
#: Of decompressed batches, of which a few records are kept, so much is held by columns that point into them.
_OWNED_BYTES_MAX: Final = 64 << 20


def column_mask(names: Iterable[str]) -> Column:
    """The kernel's bits for column names; UsageError names what there is."""
    mask = Column(0)
    for name in names:
        if name not in COLUMN_NAMES:
            raise UsageError(f"no column {name!r}: there are {', '.join(COLUMN_NAMES)}")
        mask |= COLUMN_NAMES[name]
    return mask


_DEFAULT_MASK: Final = column_mask(DEFAULT_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False)
class KeptRecords:
    """The only records of a partition that are wanted, by their offsets: 64-bit integers, in order. Without
    ``tombstones``, those that have no value are left out and counted."""

    offsets: memoryview
    tombstones: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a region becomes columns, and the limits of doing so.

    Offsets are taken from ``start`` up to but not including ``end``, timestamps (milliseconds)
    likewise; None is no bound. ``aborted`` are transactions whose records are left out: producer id, first
    offset, offset of the marker. ``keep`` are the only records that are wanted, None: all. ``batch_rows`` and
    ``batch_bytes`` say when columns are full; the log batch that crosses them still goes in whole.
    """

    columns: Column = _DEFAULT_MASK
    start: int | None = None
    end: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    aborted: tuple[tuple[int, int, int], ...] = ()
    keep: KeptRecords | None = None
    check: Check = Check.CRC | Check.ORDER
    views: bool = False
    batch_rows: int = 65536
    batch_bytes: int = 4 << 20
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.batch_rows <= INT64_MAX:
            raise UsageError(
                f"batch_rows is at least 1 and at most {INT64_MAX}, not {self.batch_rows}"
            )
        if not 1 <= self.batch_bytes <= _BATCH_BYTES_MAX:
            raise UsageError(f"batch_bytes lies between 1 and {_BATCH_BYTES_MAX}")
        if not 1 <= self.max_decompressed_bytes <= _BATCH_BYTES_MAX:
            raise UsageError(f"max_decompressed_bytes lies between 1 and {_BATCH_BYTES_MAX}")

    def bounds(self) -> tuple[int, int, int, int]:
        """First and last offset, first and last timestamp, all inclusive, within 64 bits."""
        return *_inclusive(self.start, self.end), *_inclusive(self.start_time, self.end_time)


def _inclusive(start: int | None, end: int | None) -> tuple[int, int]:
    first = INT64_MIN if start is None else start
    last = INT64_MAX if end is None else end - 1
    if first > INT64_MAX or last < INT64_MIN:
        return 1, 0  # nothing lies there
    return max(first, INT64_MIN), min(last, INT64_MAX)


@dataclass(frozen=True, slots=True)
class WalkEnd:
    """Where a walk over a region stopped, and why.

    FULL: take the columns, and go on from here. END, INCOMPLETE and CORRUPT are the region's own endings;
    what was decoded before them is in the columns.
    """

    position: int
    ending: Ending
    reason: Reason = Reason.NONE
    detail: str | None = None

    def error(self) -> CorruptionError:
        return corruption(self.reason, self.position, detail=self.detail)


class DecodedColumns(NamedTuple):
    """Decoded columns as buffers, as ``kernel.Columns.take`` describes them. ``sources`` are the buffers that
    views point into, in the order of their numbers."""

    rows: int
    buffers: dict[int, Any]
    sources: tuple[Any, ...] = ()


class RegionDecoder:
    """Decodes regions one after the other into columns of one selection."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        keep = selection.keep
        self._columns = kernel.Columns(
            selection.columns,
            selection.check,
            views=selection.views,
            rows_max=selection.batch_rows,
            bytes_max=selection.batch_bytes,
            bounds=selection.bounds(),
            aborted=array("q", chain.from_iterable(sorted(selection.aborted))),
            keep=None if keep is None else keep.offsets,
            tombstones=keep is None or keep.tombstones,
        )
        self._decompressor = Decompressor(selection.max_decompressed_bytes)
        self._header = array("q", bytes(8 * ROW_WIDTH))
        self._sources: list[Any] = []
        self._owned_bytes = 0

    @property
    def rows(self) -> int:
        """Rows that stand in the columns, not taken yet."""
        return self._columns.rows

    def expect(self, offset: int, below: int | None = None) -> None:
        """The next batch lies at or above ``offset``, -1: anywhere; and all of them below ``below``, None:
        no limit (checked as the selection says)."""
        self._columns.expected = offset
        self._columns.below = -1 if below is None else below

    @property
    def expected_offset(self) -> int:
        return self._columns.expected

    @property
    def skipped_batches(self) -> int:
        """Batches that the bounds, or the records to keep, left out by their header alone."""
        return self._columns.skipped

    @property
    def tombstones(self) -> int:
        """Records to keep that were left out because they have no value."""
        return self._columns.tombstones

    def decode(
        self,
        region: Any,
        position: int,
        limit: int,
        *,
        position_base: int = 0,
        guarded: bool = False,
    ) -> WalkEnd:
        """Decode from ``position`` on until the columns are full or the region ends.

        ``position_base`` is where the region lies in its file, for the ``position`` column. With
        views, the region must stay as it is for as long as the columns live. ``guarded``: it is a
        mapped file, and LOST tells from where on it cannot be read any more; what lies before that
        position stands in the columns.
        """
        columns = self._columns
        index = self._source_index(region)
        while True:
            try:
                position, ending, reason = columns.fill(
                    region, position, limit,
                    size_max=self.selection.max_batch_bytes,
                    position_base=position_base, buffer_index=index, guarded=guarded,
                )  # fmt: skip
                if ending != Ending.COMPRESSED:
                    return WalkEnd(position, Ending(ending), Reason(reason))
                pause = self._decode_compressed(region, position, limit, position_base, guarded)
            except BufferError:  # both leave the columns as they were at this position
                return WalkEnd(position, Ending.LOST)
            if pause.ending != Ending.END:
                return pause
            position = pause.position
            if self._owned_bytes > _OWNED_BYTES_MAX and columns.rows:
                return WalkEnd(position, Ending.FULL)

    def _decode_compressed(
        self, region: Any, position: int, limit: int, position_base: int, guarded: bool
    ) -> WalkEnd:
        """The batch at ``position``; END, and the position behind it, when all went well."""
        kernel.walk(region, position, limit, memoryview(self._header), guarded=guarded)
        end = position + self._header[Row.SIZE]
        at = position
        if guarded:  # the codec knows nothing of the guard: it gets the batch out of harm's way
            region = kernel.copy(region, position, end, guarded=True)
            at, end, position_base = 0, end - position, position_base + position
        start = self._header[Row.PAYLOAD_POSITION] - position + at
        try:
            payload = self._decompress(region, start)
        except CorruptionError as error:
            return WalkEnd(position, Ending.CORRUPT, Reason[error.reason.upper()], error.detail)
        reached, ending, reason = self._columns.add(
            region, at, end, payload,
            position_base=position_base, buffer_index=self._source_index(payload),
        )  # fmt: skip
        return WalkEnd(position + reached - at, Ending(ending), Reason(reason))

    def decode_v07(
        self, region: Any, position: int, limit: int, *, base_offset: int = 0
    ) -> WalkEnd:
        """The same for a region of a 0.7 file, whose first byte has the offset ``base_offset``."""
        columns = self._columns
        index = self._source_index(region)
        while True:
            position, ending, reason = columns.fill_v07(
                region, position, limit, base_offset=base_offset, buffer_index=index
            )
            if ending != Ending.COMPRESSED:
                return WalkEnd(position, Ending(ending), Reason(reason))
            kernel.walk_v07(region, position, limit, memoryview(self._header))
            try:
                payload = self._decompress(region, self._header[Row.PAYLOAD_POSITION])
            except CorruptionError as error:
                return WalkEnd(position, Ending.CORRUPT, Reason[error.reason.upper()], error.detail)
            position, ending, reason = columns.add_v07(
                region, position, limit, payload,
                base_offset=base_offset, buffer_index=self._source_index(payload),
            )  # fmt: skip
            if ending != Ending.END:
                return WalkEnd(position, Ending(ending), Reason(reason))

    def take(self) -> DecodedColumns:
        """Hand the columns over and start new ones."""
        rows, buffers = self._columns.take()
        sources, self._sources = tuple(self._sources), []
        self._owned_bytes = 0
        return DecodedColumns(rows, buffers, sources)

    def _source_index(self, buffer: Any) -> int:
        if not self.selection.views:
            return 0
        if not self._sources or self._sources[-1] is not buffer:
            self._sources.append(buffer)
        return len(self._sources) - 1

    def _decompress(self, region: Any, start: int) -> Any:
        """What the payload at ``start`` decompresses to, by the header that was walked last."""
        header = self._header
        codec = Codec(header[Row.ATTRIBUTES] & CODEC_MASK)
        magic = header[Row.MAGIC]  # 0.7's own mean nothing to its codecs
        payload = memoryview(region)[start : start + header[Row.PAYLOAD_SIZE]]
        if self.selection.views:
            owned = self._decompressor.decompress_owned(codec, payload, magic=magic)
            if self.selection.keep is not None:
                self._owned_bytes += len(owned)
            return owned
        return self._decompressor.decompress(codec, payload, magic=magic)


def decode_records(
    region: Any,
    selection: Selection | None = None,
    *,
    check: Check = Check.CRC | Check.ORDER,
    v07_base_offset: int | None = None,
) -> Iterator[Record]:
    """The records of a region as Python objects: for tools, tests and small things.

    Raises CorruptionError where the region ends badly, a torn tail included.
    """
    selection = selection or Selection(columns=RECORD_COLUMNS, check=check)
    decoder = RegionDecoder(selection)
    limit = memoryview(region).nbytes
    position = 0
    while True:
        if v07_base_offset is None:
            pause = decoder.decode(region, position, limit)
        else:
            pause = decoder.decode_v07(region, position, limit, base_offset=v07_base_offset)
        yield from records_of(decoder.take())
        if pause.ending == Ending.END:
            return
        if pause.ending != Ending.FULL:
            raise pause.error()
        position = pause.position


#: What :func:`records_of` needs.
RECORD_COLUMNS: Final = (
    Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS
)


def records_of(taken: DecodedColumns) -> Iterator[Record]:
    """Python records of columns that were taken with at least offset, timestamp_ms, timestamp_type,
    key, value and headers."""
    # Imported here: commands count and print columns, and these classes are a twentieth of their start.
    from stratalog.records.model import Record, RecordHeader

    buffers = taken.buffers
    offsets = memoryview(buffers[Column.OFFSET][0]).cast("q")
    timestamps = memoryview(buffers[Column.TIMESTAMP_MS][0]).cast("q")
    types = memoryview(buffers[Column.TIMESTAMP_TYPE][0]).cast("i")
    keys = binary_values(taken.rows, *buffers[Column.KEY])
    values = binary_values(taken.rows, *buffers[Column.VALUE])
    ends, header_count, header_keys, header_values = buffers[Column.HEADERS]
    ends = memoryview(ends).cast("i")
    headers = [
        RecordHeader((key or b"").decode("utf-8"), value)
        for key, value in zip(
            binary_values(header_count, None, *header_keys),
            binary_values(header_count, *header_values),
            strict=True,
        )
    ]
    for row in range(taken.rows):
        yield Record(
            offset=offsets[row],
            timestamp=timestamps[row],
            timestamp_type=TimestampType(types[row]),
            key=keys[row],
            value=values[row],
            headers=tuple(headers[ends[row] : ends[row + 1]]),
        )


def binary_values(rows: int, valid: Any, ends: Any, data: Any) -> list[bytes | None]:
    """Return the values of a binary column that was taken, from its buffers."""
    bitmap = None if valid is None else memoryview(valid)
    offsets = memoryview(ends).cast("i")
    view = memoryview(data)
    return [
        bytes(view[offsets[i] : offsets[i + 1]])
        if bitmap is None or bitmap[i >> 3] >> (i & 7) & 1
        else None
        for i in range(rows)
    ]
