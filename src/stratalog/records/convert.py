"""Old formats into record batches of magic 2, every offset and timestamp kept.

Records go through columns, so there is no Python object for each. A batch has one timestamp type, so a run of
old entries becomes as many batches as it has changes of type; compressed entries stay one batch each, so that
what was written together stays together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from stratalog.records import kernel
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.columns import DecodedColumns, RegionDecoder, Selection
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    INT32_MAX,
    Check,
    Column,
    Ending,
)
from stratalog.records.model import BatchHeader
from stratalog.records.reasons import corruption
from stratalog.records.scan import scan_batches

__all__ = ["columns_of", "rows_with_offsets", "up_convert", "up_convert_v07"]

_COLUMNS: Final = Column.OFFSET | Column.TIMESTAMP_MS | Column.KEY | Column.VALUE


def up_convert(region: Any, options: BatchOptions | None = None) -> bytes:
    """A region of any magics as magic 2. Batches of magic 2 are taken over byte by byte; old entries
    keep their codec unless ``options`` name another. CorruptionError where the region is not sound."""
    options = options or BatchOptions()
    out = bytearray()
    check = Check.CRC | Check.ORDER
    view = memoryview(region).cast("B")
    scan = scan_batches(view, check=check)
    for run in _runs(scan):
        start, end = run[0].position, run[-1].end_position
        if run[0].magic == 2:
            out += view[start:end]
        else:
            _convert_run(out, view[start:end], run, options)
    error = scan.end.error
    if error is not None:
        raise error
    return bytes(out)


def _runs(headers: Iterator[BatchHeader]) -> Iterator[list[BatchHeader]]:
    """Neighbours that become batches of one kind: plain messages of one timestamp kind together,
    up to a number; everything else alone."""
    run: list[BatchHeader] = []
    for header in headers:
        if run and (_run_key(header) != _run_key(run[-1]) or header.codec or len(run) == 4096):
            yield run
            run = []
        run.append(header)
    if run:
        yield run


def _run_key(header: BatchHeader) -> tuple[bool, int, int | None]:
    append_time = header.max_timestamp if header.attributes & APPEND_TIME_MASK else None
    return header.magic == 2, int(header.codec), append_time


def _convert_run(
    out: bytearray, region: memoryview, run: list[BatchHeader], options: BatchOptions
) -> None:
    header = run[0]
    if header.magic == 1 and header.attributes & APPEND_TIME_MASK:
        options = replace(options, append_time=header.max_timestamp)
    if header.codec:
        codec = options.codec or header.codec
        options = replace(options, codec=codec, batch_bytes=INT32_MAX - (1 << 20))
    selection = Selection(columns=_COLUMNS, batch_rows=INT32_MAX)
    for taken in columns_of(region, selection, position_base=header.position):
        builder = BatchBuilder(options, out=out)
        builder.append(rows_with_offsets(taken))


def up_convert_v07(
    region: Any,
    options: BatchOptions | None = None,
    *,
    first_offset: int = 0,
    base_position: int = 0,
) -> bytes:
    """A region of a 0.7 file as magic 2. Its offsets were byte positions, and messages compressed
    together shared one: the records are numbered anew, from ``first_offset`` on."""
    builder = BatchBuilder(options, next_offset=first_offset)
    view = memoryview(region).cast("B")
    for taken in columns_of(view, Selection(columns=_COLUMNS), v07_base_offset=base_position):
        builder.append(_rows(taken, keep_offsets=False))
    return bytes(builder.out)


def columns_of(
    region: memoryview,
    selection: Selection,
    *,
    v07_base_offset: int | None = None,
    position_base: int = 0,
) -> Iterator[DecodedColumns]:
    """Decode a region; CorruptionError where it is not sound. ``v07_base_offset`` is that of a 0.7 file's
    first byte, ``position_base`` where the region lies in its file."""
    decoder = RegionDecoder(selection)
    position = 0
    while True:
        if v07_base_offset is None:
            pause = decoder.decode(region, position, len(region))
        else:
            pause = decoder.decode_v07(region, position, len(region), base_offset=v07_base_offset)
        if decoder.rows:
            yield decoder.take()
        if pause.ending == Ending.END:
            return
        if pause.ending != Ending.FULL:
            raise corruption(pause.reason, position_base + pause.position, detail=pause.detail)
        position = pause.position


def rows_with_offsets(taken: DecodedColumns) -> kernel.Rows:
    """Return columns as rows to be written at the offsets that they have."""
    return _rows(taken, keep_offsets=True)


def _rows(taken: DecodedColumns, *, keep_offsets: bool) -> kernel.Rows:
    buffers = taken.buffers
    return kernel.Rows(
        taken.rows,
        timestamps=(None, buffers[Column.TIMESTAMP_MS][0], 0),
        offsets=(buffers[Column.OFFSET][0], 0) if keep_offsets else None,
        key=(*buffers[Column.KEY], 0),
        value=(*buffers[Column.VALUE], 0),
    )
