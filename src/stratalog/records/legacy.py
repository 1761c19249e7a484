"""Messages of magic 0 and 1: writing them, plain or inside compressed wrappers.

Reading needs no module of its own: the decoder takes every magic as it comes. The format is in
docs/formats/message-set.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.records import kernel
from stratalog.records.builder import refuse_row, rows_of_records
from stratalog.records.compression import compress
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    INT32_MAX,
    LOG_OVERHEAD,
    MESSAGE_SIZE_MIN_V1,
    Codec,
    Reason,
)
from stratalog.records.model import Record
from stratalog.types import Bytes

__all__ = ["MessageBuilder", "MessageOptions", "build_messages", "write_wrapper"]

_PREFIX: Final = struct.Struct(">qiI")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """What every message of one write has in common."""

    magic: int = 1
    codec: Codec = Codec.NONE
    level: int | None = None
    wrapper_bytes: int = 16384  # of messages in one wrapper before compression
    append_time: int | None = None  # LogAppendTime, magic 1 only

    def __post_init__(self) -> None:
        if self.magic not in (0, 1):
            raise UsageError(f"messages have magic 0 or 1, not {self.magic}")
        if self.magic == 0 and self.append_time is not None:
            raise UsageError("magic 0 has no timestamps")
        if self.codec == Codec.ZSTD:
            raise UsageError("zstd came with magic 2: messages take gzip, snappy or lz4")


def write_wrapper(
    out: bytearray,
    inner: Bytes,
    *,
    magic: int,
    attributes: int,
    last_offset: int,
    timestamp: int,
    level: int | None = None,
) -> None:
    """Append the wrapper of the messages ``inner``, compressed with the codec of ``attributes``.

    ``last_offset`` is that of the last message; ``timestamp`` the largest of them, or the append time.
    """
    value = compress(Codec(attributes & CODEC_MASK), inner, level=level, magic=magic)
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += struct.pack(">ii", -1, len(value))
    crc = kernel.crc32(value, kernel.crc32(body))
    out += _PREFIX.pack(last_offset, 4 + len(body) + len(value), crc)
    out += body
    out += value


class MessageBuilder:
    """Appends messages to a buffer, carrying offsets from one call to the next."""

    def __init__(
        self,
        options: MessageOptions | None = None,
        *,
        next_offset: int = 0,
        out: bytearray | None = None,
    ) -> None:
        self.options = options or MessageOptions()
        self.out = bytearray() if out is None else out
        self.next_offset = next_offset

    def append(self, rows: kernel.Rows) -> None:
        """All ``rows``: plain, or in as many wrappers as their size asks for.

        Offsets count from ``next_offset``, unless the rows bring their own: those are kept, and
        must lie above it. Headers of records cannot be written: these formats have none.
        """
        if rows.has_headers:
            raise InvalidRecordError("magic 0 and 1 have no record headers: write magic 2")
        row = 0
        while row < rows.count:
            if self.options.codec == Codec.NONE:
                row = self._append_plain(rows, row)
            else:
                row = self._append_wrapper(rows, row)

    def _append_plain(self, rows: kernel.Rows, row: int) -> int:
        append_time = self.options.append_time
        attributes = 0 if append_time is None else APPEND_TIME_MASK
        row_end, last_offset, _ = self._encode(
            self.out, rows, row, INT32_MAX, attributes, append_time=append_time
        )
        self.next_offset = last_offset + 1
        return row_end

    def _append_wrapper(self, rows: kernel.Rows, row: int) -> int:
        options = self.options
        inner = bytearray()
        row_end, last_offset, max_timestamp = self._encode(
            inner, rows, row, options.wrapper_bytes, 0, relative=options.magic == 1
        )
        attributes = int(options.codec)
        if options.append_time is not None:
            attributes |= APPEND_TIME_MASK
            max_timestamp = options.append_time
        write_wrapper(
            self.out,
            inner,
            magic=options.magic,
            attributes=attributes,
            last_offset=last_offset,
            timestamp=max_timestamp,
            level=options.level,
        )
        self.next_offset = last_offset + 1
        return row_end

    def _encode(
        self,
        out: bytearray,
        rows: kernel.Rows,
        row: int,
        size_target: int,
        attributes: int,
        *,
        relative: bool = False,
        append_time: int | None = None,
    ) -> tuple[int, int, int]:
        at = len(out)
        row_end, first, last, max_timestamp, reason = kernel.encode_messages(
            out, rows, row, rows.count, size_target,
            self.options.magic, attributes, self.next_offset, relative, append_time,
        )  # fmt: skip
        if not reason and first < self.next_offset:
            row_end, reason = row, Reason.OFFSET_ORDER
        if reason:
            del out[at:]
            raise refuse_row(row_end, reason)
        return row_end, last, max_timestamp


def build_messages(
    records: Sequence[Record], options: MessageOptions | None = None, *, base_offset: int = 0
) -> bytes:
    """A message set of all ``records``. Their own offsets are kept where every one has one (>= 0)."""
    builder = MessageBuilder(options, next_offset=base_offset)
    builder.append(rows_of_records(records))
    return bytes(builder.out)


assert _PREFIX.size + 2 + 8 + 8 == LOG_OVERHEAD + MESSAGE_SIZE_MIN_V1
