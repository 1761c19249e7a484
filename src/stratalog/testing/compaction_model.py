"""Compaction of a list of batches by Kafka's rules: what the cleaner must agree with.

One pass over the list notes the newest offset of each key, a second one decides what is left of each batch.
There are no maps of digests, no windows and no groups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stratalog.records.control import ControlType
from stratalog.records.model import Record
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.testing.log_model import LogModel, ModelBatch, ModelTxn

__all__ = ["ModelCleaned", "ModelCleaning", "compact"]


class ModelCleaning(NamedTuple):
    """What one cleaning goes by. ``bases`` are the base offsets of all segments, the active one last."""

    bases: Sequence[int]
    first_dirty: int
    first_uncleanable: int
    keys_max: int
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, ProducerEntry]

    def segment_of(self, batch: ModelBatch) -> int:
        return self.bases[bisect_right(self.bases, batch.base_offset) - 1]


class ModelCleaned(NamedTuple):
    """A log after one cleaning. The ``data`` of a batch that was changed is empty. The next cleaning begins
    at ``end_offset``; the segments below ``rewritten_end`` are new."""

    batches: list[ModelBatch]
    end_offset: int
    rewritten_end: int
    #: Producer and marker of the transactions that the indexes of the new segments list as aborted.
    aborted: set[tuple[int, int]]


def compact(batches: Sequence[ModelBatch], cleaning: ModelCleaning) -> ModelCleaned:
    """Clean a log once."""
    aborted = [txn for txn in LogModel(list(batches)).transactions() if txn.is_aborted]
    is_aborted = {
        batch.base_offset
        for batch in batches
        if not batch.is_control and any(txn.holds(batch) for txn in aborted)
    }
    newest, latest = _newest_offsets(batches, cleaning, is_aborted)
    left: list[ModelBatch] = []
    filtering = _Filtering(cleaning, newest, latest)
    for batch in batches:
        base = cleaning.segment_of(batch)
        if base > latest or base == cleaning.bases[-1]:
            left.append(batch)
        else:
            left += filtering.filter(batch, batch.base_offset in is_aborted)
    end = next((base for base in cleaning.bases if base > latest), cleaning.bases[-1])
    return ModelCleaned(
        left,
        latest + 1,
        end,
        {(txn.producer_id, _marker(txn)) for txn in aborted if _marker(txn) < end},
    )


def _marker(txn: ModelTxn) -> int:
    assert txn.marker_offset is not None
    return txn.marker_offset


def _newest_offsets(
    batches: Sequence[ModelBatch], cleaning: ModelCleaning, is_aborted: set[int]
) -> tuple[dict[bytes, int], int]:
    """Return the newest offset of each key of the dirty section, and the last offset that was noted."""
    newest: dict[bytes, int] = {}
    latest = -1
    for base, end in zip(cleaning.bases, [*cleaning.bases[1:], 1 << 63], strict=True):
        if end <= cleaning.first_dirty or base >= cleaning.first_uncleanable:
            continue
        for batch in batches:
            if not base <= batch.base_offset < end:
                continue
            is_noted = not batch.is_control and batch.base_offset not in is_aborted
            for record in batch.records if is_noted else ():
                if record.key is not None and record.offset >= cleaning.first_dirty:
                    if len(newest) >= cleaning.keys_max:
                        return newest, latest
                    newest[record.key] = latest = record.offset
            latest = max(latest, batch.last_offset)
        latest = min(end, cleaning.first_uncleanable) - 1
    return newest, latest


class _Filtering:
    def __init__(self, cleaning: ModelCleaning, newest: Mapping[bytes, int], latest: int) -> None:
        self._cleaning = cleaning
        self._newest = newest
        self._latest = latest
        #: Producers of which data was seen since their last marker.
        self._aborted: set[int] = set()
        self._committed: set[int] = set()

    def filter(self, batch: ModelBatch, is_aborted: bool) -> list[ModelBatch]:
        """Return the batch as it is afterwards, or nothing."""
        may_go = self._may_go(batch, is_aborted)
        kept = tuple(record for record in batch.records if self._keeps(record, batch, may_go))
        if not kept:
            return [_emptied(batch)] if self._keeps_header(batch) else []
        horizon = batch.delete_horizon_ms
        has_tombstone = any(record.value is None for record in kept) and not batch.is_control
        if horizon is None and (has_tombstone or (batch.is_control and may_go)):
            horizon = self._cleaning.now_ms + self._cleaning.delete_retention_ms
        if kept == batch.records and horizon == batch.delete_horizon_ms:
            return [batch]
        newest_time = max(record.timestamp for record in kept)
        return [
            batch._replace(
                data=b"", records=kept, max_timestamp=newest_time, delete_horizon_ms=horizon
            )
        ]

    def _may_go(self, batch: ModelBatch, is_aborted: bool) -> bool:
        """Whether the transaction of a batch needs it no more."""
        if batch.is_control:
            if batch.marker is None:
                return True
            seen = self._aborted if batch.marker is ControlType.ABORT else self._committed
            may_go = batch.producer_id not in seen
            seen.discard(batch.producer_id)
            return may_go
        if is_aborted:
            self._aborted.add(batch.producer_id)
        elif batch.is_transactional:
            self._committed.add(batch.producer_id)
        return is_aborted

    def _keeps(self, record: Record, batch: ModelBatch, may_go: bool) -> bool:
        horizon, now_ms = batch.delete_horizon_ms, self._cleaning.now_ms
        if batch.is_control:
            return not (may_go and horizon is not None and horizon <= now_ms)
        if may_go:
            return False
        if record.offset > self._latest:
            return True
        if record.key is None or record.offset < self._newest.get(record.key, -1):
            return False
        return record.value is not None or horizon is None or now_ms < horizon

    def _keeps_header(self, batch: ModelBatch) -> bool:
        entry = self._cleaning.producers.get(batch.producer_id)
        if entry is not None and batch.producer_id >= 0:
            if entry.batches and entry.batches[-1].last_offset == batch.last_offset:
                return True
            if not entry.batches and batch.is_control and entry.epoch == batch.producer_epoch:
                return True
        return batch.next_offset == self._cleaning.first_uncleanable


def _emptied(batch: ModelBatch) -> ModelBatch:
    if not batch.records:
        return batch
    return batch._replace(data=b"", records=(), marker=None, delete_horizon_ms=None)
