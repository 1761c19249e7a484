"""When the records of a log file are from: the time of the first, and the latest of all.

The latest is in the headers. The first record's is not in every format: its batch is decoded.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

from stratalog.inspect.file.decode import decode_file
from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection
from stratalog.records.layout import MAX_TIMESTAMP_AT, ROW_WIDTH, Check, Column, Row
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.types import NO_TIMESTAMP

__all__ = ["LatestTime", "first_time"]

_HEADERS_AT_ONCE: Final = 1024
_MAX_TIMESTAMP: Final = Struct(f">{MAX_TIMESTAMP_AT}xq")


def first_time(
    log_file: LogFile, *, max_batch_bytes: int, max_decompressed_bytes: int
) -> int | None:
    """The timestamp of the first record that has one; None where there is no such record."""
    decoder = RegionDecoder(
        Selection(
            columns=Column.TIMESTAMP_MS,
            start_time=0,  # before that is "none", and what nobody means
            check=Check.INCLUDE_CONTROL,
            batch_rows=1,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    )
    for _ in decode_file(log_file, decoder):
        if decoder.rows:
            return memoryview(decoder.take().buffers[Column.TIMESTAMP_MS][0]).cast("B").cast("q")[0]
    return None


class LatestTime:
    """The latest timestamp of the batches that were noted. To note one twice is harmless."""

    def __init__(self) -> None:
        self.value: int | None = None
        self._headers = array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE))

    def note(self, time: int) -> None:
        if time != NO_TIMESTAMP and (self.value is None or time > self.value):
            self.value = time

    def note_window(self, window: Window, at: int, limit: int) -> None:
        """The batches of a part of a window that was walked already. BufferError where it is lost."""
        while at < limit:
            held, at, *_ = kernel.walk(
                window.data, at, limit, memoryview(self._headers), guarded=window.guarded
            )
            if not held:
                return
            self.note(max(self._headers[Row.MAX_TIMESTAMP : held * ROW_WIDTH : ROW_WIDTH]))

    def note_header(self, header: bytearray) -> None:
        """A batch of magic 2, by its header."""
        self.note(_MAX_TIMESTAMP.unpack_from(header)[0])
