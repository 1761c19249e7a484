"""Recompress batches: any codec and level to any other, with the records inside byte for byte as they were.

Batches that have the codec already are copied. Control batches are never compressed. Messages of magic 0 and
1 stay messages of their magic: wrappers get the other codec, or are unwrapped; plain messages are wrapped,
neighbours together. They cannot hold zstd, and are then left as they are and counted: upgrade the log first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.records.compression import Decompressor, compress
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CODECS,
    CONTROL_MASK,
    INT32_MAX,
    ROW_WIDTH,
    Codec,
    Row,
)
from stratalog.records.legacy import MessageOptions
from stratalog.records.rewrap import rewrap_messages
from stratalog.rewrite.batchwise import OUTPUT_BYTES, BatchwiseTransform
from stratalog.rewrite.header_tally import BatchKind, tally_headers
from stratalog.rewrite.plan import (
    PlannedGroup,
    RewritePlan,
    SealedFacts,
    find_rewritable,
    plan_each,
    segment_at,
)
from stratalog.rewrite.run import TransformRewrite
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.log_file import Window
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress

__all__ = ["Recompress", "Recompression", "codec_named"]

#: How much larger than its compressed form a batch may become, for the disk space that a plan asks for.
_EXPANSION: Final = 4
#: Plain messages that are wrapped together, before compression.
_WRAPPER_BYTES: Final = 64 << 10

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_MAGIC: Final = int(Row.MAGIC)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_BASE_TIMESTAMP: Final = int(Row.BASE_TIMESTAMP)
_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)
_RECORD_COUNT: Final = int(Row.RECORD_COUNT)
_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_PRODUCER_EPOCH: Final = int(Row.PRODUCER_EPOCH)
_BASE_SEQUENCE: Final = int(Row.BASE_SEQUENCE)
_LEADER_EPOCH: Final = int(Row.LEADER_EPOCH)
_PAYLOAD_POSITION: Final = int(Row.PAYLOAD_POSITION)
_PAYLOAD_SIZE: Final = int(Row.PAYLOAD_SIZE)
_ZSTD: Final = int(Codec.ZSTD)


def codec_named(name: str) -> Codec:
    """Return a codec by its name; UsageError if there is none of this name."""
    if name not in CODECS:
        raise UsageError(f"there is no codec {name!r}: known are {', '.join(CODECS)}")
    return CODECS[name]


class Recompress(TransformRewrite):
    """The rewrite ``recompress``. With ``force``, batches that have the codec already are compressed again,
    for another level."""

    verb: Final = "recompress"

    def __init__(self, codec: Codec, level: int | None = None, *, force: bool = False) -> None:
        compress(codec, b"", level=level)  # UsageError if the codec has no such level
        self._codec = codec
        self._level = level
        self._force = force

    def options(self) -> Mapping[str, object]:
        return {"codec": self._codec.text, "level": self._level, "force": self._force}

    def plan(
        self,
        view: LogView,
        config: LogConfig,  # noqa: ARG002
        end: int,
        progress: Progress,
        *,
        counts: bool = True,  # noqa: ARG002
    ) -> RewritePlan:
        segments, left = find_rewritable(view, end)
        judged = []
        for facts in segments:
            tally = tally_headers(segment_at(view, facts), facts.size_bytes)
            progress(facts.size_bytes)
            judged.append((facts, self._judge(facts, tally.batches)))
        return plan_each(self.verb, end, judged, left)

    def _judge(self, facts: SealedFacts, batches: Counter[BatchKind]) -> PlannedGroup | str:
        due = sum(count for kind, count in batches.items() if self.changes(kind))
        if not due:
            barred = sum(count for kind, count in batches.items() if self._is_barred(kind))
            if barred:
                return "zstd needs magic 2: upgrade the messages of magic 0 and 1 first"
            return f"every batch is {self._codec.text} already"
        reason = f"{due} of {sum(batches.values())} batches become {self._codec.text}"
        size = facts.size_bytes * (_EXPANSION if self._codec is Codec.NONE else 1)
        return PlannedGroup((facts,), reason, size)

    def changes(self, kind: BatchKind) -> bool:
        """Return whether a batch is compressed again."""
        if kind.is_control or kind.is_empty or self._is_barred(kind):
            return False
        return kind.codec is not self._codec or (self._force and self._codec is not Codec.NONE)

    def _is_barred(self, kind: BatchKind) -> bool:
        return self._codec is Codec.ZSTD and kind.magic < 2

    def size_max(self, config: LogConfig) -> int:
        return config.effective_segment_bytes

    def transform(self, producers: Iterable[ProducerEntry], end: int) -> Recompression:  # noqa: ARG002
        return Recompression(self._codec, self._level, force=self._force)


class Recompression(BatchwiseTransform):
    """Gives batches another codec."""

    def __init__(self, codec: Codec, level: int | None, *, force: bool) -> None:
        super().__init__()
        self._codec = codec
        self._level = level
        self._force = force and codec is not Codec.NONE
        self._decompressor = Decompressor()
        self._recompressed = 0
        self._copied = 0
        self._barred = 0

    def counted(self) -> Mapping[str, int]:
        return {
            "batches": self._recompressed + self._copied + self._barred,
            "recompressed": self._recompressed,
            "copied": self._copied,
            "left_for_zstd": self._barred,
        }

    def take_batches(self, window: Window, rows: memoryview, count: int) -> int:
        done = (self._recompressed, self._copied, self._barred)
        taken = 0
        try:
            while taken < count and (taken == 0 or len(self.out) < OUTPUT_BYTES):
                taken += self._take_one(window, rows[taken * ROW_WIDTH : count * ROW_WIDTH])
        except BufferError:
            self._recompressed, self._copied, self._barred = done
            raise
        except CorruptionError as error:
            position = rows[taken * ROW_WIDTH + _POSITION]
            raise CorruptionError(error.reason, error.detail, position=position) from None
        return taken

    def _take_one(self, window: Window, rows: memoryview) -> int:
        """Take the first of some batches, or several that become one; return how many."""
        magic, attributes = rows[_MAGIC], rows[_ATTRIBUTES]
        codec = attributes & CODEC_MASK
        if magic < 2:
            return self._take_messages(window, rows)
        keeps = (
            (codec == self._codec and not self._force)
            or attributes & CONTROL_MASK
            or not rows[_PAYLOAD_SIZE]
        )
        if keeps:
            return self._copy(window, rows)
        start = rows[_PAYLOAD_POSITION]
        payload = window.copy(start, start + rows[_PAYLOAD_SIZE])
        records = self._decompressor.decompress(codec, payload) if codec else payload
        at = len(self.out)
        self.out += bytes(BATCH_HEADER_SIZE)
        self.out += compress(self._codec, records, level=self._level)
        kernel.write_batch_header(
            self.out, at, rows[_BASE_OFFSET], rows[_LEADER_EPOCH],
            (attributes & ~CODEC_MASK) | self._codec,
            rows[_LAST_OFFSET] - rows[_BASE_OFFSET], rows[_BASE_TIMESTAMP], rows[_MAX_TIMESTAMP],
            rows[_PRODUCER_ID], rows[_PRODUCER_EPOCH], rows[_BASE_SEQUENCE], rows[_RECORD_COUNT],
        )  # fmt: skip
        self._recompressed += 1
        return 1

    def _copy(self, window: Window, rows: memoryview, count: int = 1) -> int:
        last = (count - 1) * ROW_WIDTH
        self.out += window.copy(rows[_POSITION], rows[last + _POSITION] + rows[last + _SIZE])
        self._copied += count
        return count

    def _take_messages(self, window: Window, rows: memoryview) -> int:
        codec = rows[_ATTRIBUTES] & CODEC_MASK
        if self._codec == _ZSTD:
            self._copied -= 1
            self._barred += 1
            return self._copy(window, rows)
        if codec == self._codec and not self._force:
            return self._copy(window, rows)
        count = 1 if codec else _alike(rows)
        last = (count - 1) * ROW_WIDTH
        start, end = rows[_POSITION], rows[last + _POSITION] + rows[last + _SIZE]
        is_append_time = rows[_MAGIC] == 1 and rows[_ATTRIBUTES] & APPEND_TIME_MASK
        options = MessageOptions(
            magic=rows[_MAGIC],
            codec=self._codec,
            level=self._level,
            wrapper_bytes=INT32_MAX,  # what was written together stays together
            append_time=rows[_MAX_TIMESTAMP] if is_append_time else None,
        )
        rewrap_messages(self.out, window.copy(start, end), options)
        self._recompressed += count
        return count


def _alike(rows: memoryview) -> int:
    """Return how many plain messages, from the first on, can be wrapped together: of one magic, and if their
    times are the broker's, of one time. Together they are not larger than a wrapper."""
    magic, attributes, time = rows[_MAGIC], rows[_ATTRIBUTES], rows[_MAX_TIMESTAMP]
    is_append_time = magic == 1 and attributes & APPEND_TIME_MASK
    count, size = 1, rows[_SIZE]
    while (count + 1) * ROW_WIDTH <= len(rows):
        at = count * ROW_WIDTH
        size += rows[at + _SIZE]
        if (
            size > _WRAPPER_BYTES
            or (rows[at + _MAGIC], rows[at + _ATTRIBUTES]) != (magic, attributes)
            or (is_append_time and rows[at + _MAX_TIMESTAMP] != time)
        ):
            break
        count += 1
    return count
