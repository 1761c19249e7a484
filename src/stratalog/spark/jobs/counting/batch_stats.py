"""What the headers of batches tell beyond a count: codecs, formats, sizes, producers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from stratalog.inspect.file.times import LatestTime
from stratalog.records import kernel
from stratalog.records.layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CODECS,
    CONTROL_MASK,
    LOG_OVERHEAD,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    ROW_WIDTH,
    SIZE_AT,
    TRANSACTIONAL_MASK,
    Magic,
    Row,
)
from stratalog.storage.segment.log_file import Window

__all__ = ["BatchStats", "HeaderStats", "stats_of_headers"]

_ROWS_AT_ONCE: Final = 2048
_SIZE: Final = Struct(f">{SIZE_AT}xi")
_ATTRIBUTES: Final = Struct(f">{ATTRIBUTES_AT}xh")
_PRODUCER_ID: Final = Struct(f">{PRODUCER_ID_AT}xq")
_RECORD_COUNT: Final = Struct(f">{RECORD_COUNT_AT}xi")
_CODEC_NAMES: Final = {int(codec): name for name, codec in CODECS.items()}


@dataclass(slots=True)
class BatchStats:
    """Batches added up. ``codecs`` and ``magics`` say how many batches are of each."""

    codecs: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    batch_bytes: int = 0
    compressed_bytes: int = 0
    batch_bytes_min: int | None = None
    batch_bytes_max: int | None = None
    batch_records_max: int | None = None
    transactional_batches: int = 0
    idempotent_batches: int = 0

    @classmethod
    def sum(cls, several: Iterable[BatchStats]) -> BatchStats:
        total = cls()
        for each in several:
            total.add(each)
        return total

    def add(self, other: BatchStats) -> None:
        self.codecs += other.codecs
        self.magics += other.magics
        self.batch_bytes += other.batch_bytes
        self.compressed_bytes += other.compressed_bytes
        self.transactional_batches += other.transactional_batches
        self.idempotent_batches += other.idempotent_batches
        lows = [n for n in (self.batch_bytes_min, other.batch_bytes_min) if n is not None]
        self.batch_bytes_min = min(lows, default=None)
        highs = [n for n in (self.batch_bytes_max, other.batch_bytes_max) if n is not None]
        self.batch_bytes_max = max(highs, default=None)
        most = [n for n in (self.batch_records_max, other.batch_records_max) if n is not None]
        self.batch_records_max = max(most, default=None)

    def note(self, size: int, attributes: int, records: int, producer_id: int) -> None:
        """One batch of magic 2."""
        self.add(
            BatchStats(
                codecs=Counter({_CODEC_NAMES.get(attributes & CODEC_MASK, "unknown"): 1}),
                magics=Counter({int(Magic.V2): 1}),
                batch_bytes=size,
                compressed_bytes=size if attributes & CODEC_MASK else 0,
                batch_bytes_min=size,
                batch_bytes_max=size,
                batch_records_max=records,
                transactional_batches=int(bool(attributes & TRANSACTIONAL_MASK)),
                idempotent_batches=int(producer_id >= 0 and not attributes & CONTROL_MASK),
            )
        )


def stats_of_headers(headers: array[int], count: int) -> BatchStats:
    """Return the statistics of batches by their header rows, all at once."""
    import numpy as np

    table = np.frombuffer(headers, np.int64, count * ROW_WIDTH).reshape(count, ROW_WIDTH)
    sizes, attributes, magics = (table[:, each] for each in (Row.SIZE, Row.ATTRIBUTES, Row.MAGIC))
    codecs, records = attributes & CODEC_MASK, table[:, Row.RECORD_COUNT]
    of_batches = magics == int(
        Magic.V2
    )  # older ones use the same bits for nothing, or something else
    is_data = attributes & CONTROL_MASK == 0
    found = BatchStats(
        batch_bytes=int(sizes.sum()),
        compressed_bytes=int(sizes[codecs != 0].sum()),
        batch_bytes_min=int(sizes.min()),
        batch_bytes_max=int(sizes.max()),
        # Of a wrapper only the inside tells.
        batch_records_max=int(records.max()) if records.max() >= 0 else None,
        transactional_batches=int((of_batches & (attributes & TRANSACTIONAL_MASK != 0)).sum()),
        idempotent_batches=int((of_batches & is_data & (table[:, Row.PRODUCER_ID] >= 0)).sum()),
    )
    for codec, batches in zip(*np.unique(codecs, return_counts=True), strict=True):
        found.codecs[_CODEC_NAMES.get(int(codec), "unknown")] += int(batches)
    for magic, batches in zip(*np.unique(magics, return_counts=True), strict=True):
        found.magics[int(magic)] += int(batches)
    return found


class HeaderStats(LatestTime):
    """Notes everything of the headers that a counter passes. A part that is lost is noted again when it is
    read again, so that it counts only when all of it was noted."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = BatchStats()
        self._headers = array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE))

    def note_window(self, window: Window, at: int, limit: int) -> None:
        noted = BatchStats()
        start = at
        while at < limit:
            held, at, *_ = kernel.walk(
                window.data, at, limit, memoryview(self._headers), guarded=window.guarded
            )
            if not held:
                break
            noted.add(stats_of_headers(self._headers, held))
        super().note_window(window, start, limit)
        self.stats.add(noted)

    def note_header(self, header: bytearray) -> None:
        super().note_header(header)
        assert len(header) >= BATCH_HEADER_SIZE
        self.stats.note(
            _SIZE.unpack_from(header)[0] + LOG_OVERHEAD,
            _ATTRIBUTES.unpack_from(header)[0],
            _RECORD_COUNT.unpack_from(header)[0],
            _PRODUCER_ID.unpack_from(header)[0],
        )
