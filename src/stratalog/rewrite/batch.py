"""Take one batch out of a window, decompressed: what the kernel hands back to be decided on or unpacked."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from stratalog.records import kernel
from stratalog.records.compression import Decompressor
from stratalog.records.layout import CODEC_MASK, ROW_WIDTH, Row
from stratalog.records.model import BatchHeader
from stratalog.storage.segment.log_file import Window
from stratalog.types import Bytes

__all__ = ["BatchReader", "WindowBatch"]


class WindowBatch(NamedTuple):
    """A batch or wrapper in memory of its own. ``payload`` are its records or messages, and is valid until
    the next batch is read."""

    data: bytes
    header: BatchHeader
    payload: Bytes


class BatchReader:
    """Reads batches one after the other. Raises CorruptionError if one cannot be decompressed, BufferError if
    the window's mapping is lost."""

    def __init__(self, decompressed_max: int | None = None) -> None:
        self._decompressor = (
            Decompressor() if decompressed_max is None else Decompressor(decompressed_max)
        )
        self._row = memoryview(array("q", bytes(8 * ROW_WIDTH)))

    def read(self, window: Window, position: int) -> WindowBatch:
        """Read the batch at a position of the window, whose header is sound."""
        row = self._row
        kernel.walk(window.data, position, window.length, row, guarded=window.guarded)
        size = row[Row.SIZE]
        data = window.copy(position, position + size)
        row[Row.PAYLOAD_POSITION] -= position
        row[Row.POSITION] = 0
        header = BatchHeader.from_row(row.tolist())
        start = header.payload_position
        stored = memoryview(data)[start : start + header.payload_size_bytes]
        payload = (
            self._decompressor.decompress(
                header.attributes & CODEC_MASK, stored, magic=header.magic
            )
            if len(stored)
            else stored
        )
        return WindowBatch(data, header, payload)
