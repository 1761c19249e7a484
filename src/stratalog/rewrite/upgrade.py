"""Upgrade messages of magic 0 and 1 to batches of magic 2. Offsets, timestamps and codecs are kept.

A wrapper becomes one batch. Plain messages become batches together, as long as their timestamps are of one
type and they stay below ``BATCH_BYTES``. Batches of magic 2 are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records.builder import BATCH_BYTES, BatchOptions
from stratalog.records.convert import up_convert
from stratalog.records.layout import CODEC_MASK, ROW_WIDTH, Row
from stratalog.rewrite.batchwise import OUTPUT_BYTES, BatchwiseTransform
from stratalog.rewrite.header_tally import HeaderTally, tally_headers
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

__all__ = ["Upgrade", "Upgrading"]

#: Old entries that are converted at once, unless one is larger.
_RUN_BYTES: Final = 1 << 20
_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_MAGIC: Final = int(Row.MAGIC)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)


class Upgrade(TransformRewrite):
    """The rewrite ``upgrade``, of logs of Kafka 0.8 and later. See ``upgrade_v07`` for those of 0.7."""

    verb: Final = "upgrade"

    def options(self) -> Mapping[str, object]:
        return {"magic": 2}

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
            judged.append((facts, _judge(facts, tally)))
        return plan_each(self.verb, end, judged, left)

    def size_max(self, config: LogConfig) -> int:
        return config.effective_segment_bytes

    def transform(self, producers: Iterable[ProducerEntry], end: int) -> Upgrading:  # noqa: ARG002
        return Upgrading()


def _judge(facts: SealedFacts, tally: HeaderTally) -> PlannedGroup | str:
    old = sum(count for kind, count in tally.batches.items() if kind.magic < 2)
    if not old:
        return "every batch is of magic 2 already"
    reason = f"{old} of {sum(tally.batches.values())} entries are of magic 0 or 1"
    # A header of a batch is larger than that of a message: by 61 bytes to 26, if each has a batch of its own.
    return PlannedGroup((facts,), reason, facts.size_bytes * 3, tally.records)


class Upgrading(BatchwiseTransform):
    """Turns messages and wrappers into batches of magic 2."""

    def __init__(self) -> None:
        super().__init__()
        self._options = BatchOptions(batch_bytes=BATCH_BYTES)
        self._converted = 0
        self._copied = 0

    def counted(self) -> Mapping[str, int]:
        return {
            "entries": self._converted + self._copied,
            "upgraded": self._converted,
            "copied": self._copied,
        }

    def take_batches(self, window: Window, rows: memoryview, count: int) -> int:
        taken = _run(rows, count)
        last = (taken - 1) * ROW_WIDTH
        start, end = rows[_POSITION], rows[last + _POSITION] + rows[last + _SIZE]
        data = window.copy(start, end)
        if rows[_MAGIC] == 2:
            self.out += data
            self._copied += taken
            return taken
        try:
            self.out += up_convert(data, self._options)
        except CorruptionError as error:
            position = start + (error.position or 0)
            raise CorruptionError(error.reason, error.detail, position=position) from None
        self._converted += taken
        return taken


def _run(rows: memoryview, count: int) -> int:
    """Return how many entries, from the first on, are taken at once: all of magic 2, or all of the old
    magics; compressed ones of these a few at a time, because they become larger."""
    is_old = rows[_MAGIC] < 2
    limit = _RUN_BYTES if is_old else OUTPUT_BYTES
    weight = 0
    for number in range(count):
        at = number * ROW_WIDTH
        size = rows[at + _SIZE]
        weight += size * (8 if is_old and rows[at + _ATTRIBUTES] & CODEC_MASK else 1)
        if number and (weight > limit or (rows[at + _MAGIC] < 2) != is_old):
            return number
    return count
