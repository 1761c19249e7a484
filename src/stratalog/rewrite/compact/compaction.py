"""The transform of a compaction: batches without superseded records, expired tombstones and aborted data."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd, decode_records
from stratalog.records.control import ControlRecord, parse_control
from stratalog.records.layout import Check, Ending, FilterCount, Reason
from stratalog.records.rebuild import rebuild_batch
from stratalog.rewrite.batch import BatchReader, WindowBatch
from stratalog.rewrite.compact.offset_map import aborted_fields
from stratalog.rewrite.compact.transactions import CleanedTransactions
from stratalog.rewrite.source import SourceSegment
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["Compaction", "CompactionRules", "Superseded", "control_record", "last_batches"]

_CHECK: Final = Check.CRC | Check.ORDER
#: What is gathered before it is written.
_OUTPUT_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """What a cleaning goes by. ``round_end`` is the first offset that may not be cleaned: the batch before it
    keeps its header, so that the end of the section is not lost. Tombstones of the old formats are kept in
    segments that changed after ``legacy_horizon_ms``."""

    now_ms: int
    delete_retention_ms: int
    round_end: int
    legacy_horizon_ms: int
    producers: Mapping[int, ProducerEntry]


def last_batches(producers: Iterable[ProducerEntry]) -> array[int]:
    """Return last offset and producer id of the last batch of each producer, in the order of the offsets: as
    the kernel takes them."""
    last = sorted(
        (each.batches[-1].last_offset, each.producer_id) for each in producers if each.batches
    )
    return array("q", chain.from_iterable(last))


class Superseded(NamedTuple):
    """The offsets of all records, up to ``latest_offset``, whose key has a newer record: 64-bit integers, in
    order."""

    offsets: Any
    latest_offset: int


class Compaction:
    """Compacts segments from the start of a log on, one after the other."""

    def __init__(
        self,
        newest: kernel.OffsetMap | Superseded,
        rules: CompactionRules,
        find_aborted: Callable[[int, int], Sequence[AbortedTxn]],
        transactions: CleanedTransactions | None = None,
    ) -> None:
        """``newest`` has the newest offsets, or the superseded ones if they were found elsewhere.
        ``find_aborted`` returns the aborted transactions with records between two offsets. ``transactions``
        are those that are open where the first segment begins, if that is not the start of the log."""
        self._rules = rules
        self._find_aborted = find_aborted
        self._transactions = transactions or CleanedTransactions()
        self._batches = BatchReader()
        self._aborted: list[AbortedTxn] = []
        found = newest if isinstance(newest, Superseded) else None
        self._filter = kernel.BatchFilter(
            None if isinstance(newest, Superseded) else newest,
            drop=None if found is None else found.offsets,
            latest_offset=None if found is None else found.latest_offset,
            now=rules.now_ms,
            delete_retention=rules.delete_retention_ms,
            flags=_CHECK,
            round_end=rules.round_end,
            last_batches=last_batches(rules.producers.values()),
            bytes_max=_OUTPUT_BYTES,
        )

    def counted(self) -> dict[str, int]:
        """Return what was read, kept and removed so far, by name."""
        return {count.name.lower(): number for count, number in self.counts.items()}

    @property
    def counts(self) -> dict[FilterCount, int]:
        """What was read, kept and removed so far."""
        return dict(zip(FilterCount, self._filter.counts, strict=True))

    def begin(self, source: SourceSegment) -> None:
        aborted = self._find_aborted(source.base_offset, source.next_base)
        self._transactions.add(aborted)
        self._filter.begin_segment(
            source.base_offset,
            source.next_base,
            aborted=aborted_fields(aborted),
            keeps_legacy_deletes=source.modified_ms > self._rules.legacy_horizon_ms,
        )

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            try:
                at, ending, reason = self._filter.filter(
                    window.data, at, window.length, guarded=window.guarded
                )
                if ending in (Ending.COMPRESSED, Ending.CONTROL):
                    at, ending, reason = self._take_batch(window, at)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(at, Ending.CORRUPT, _reason_of(error), error.detail)
            if ending == Ending.FULL:
                self._drain(self._filter.expected - 1)
                if self._filter.used >= _OUTPUT_BYTES:
                    return WalkEnd(at, Ending.FULL)
            elif ending != Ending.COMPRESSED:
                return WalkEnd(at, Ending(ending), Reason(reason))

    def _drain(self, up_to: int) -> None:
        self._transactions.note_batches(up_to, self._filter.take_events())

    def _take_batch(self, window: Window, at: int) -> tuple[int, int, int]:
        """Filter a batch that the kernel does not take by itself. COMPRESSED: it was taken; go on."""
        batch = self._batches.read(window, at)
        header = batch.header
        self._drain(header.last_offset if header.is_control else header.last_offset - 1)
        if header.is_control:
            size, ending, reason, records, facts = self._take_control(batch)
        else:
            size, ending, reason, records, facts = self._filter.filter_batch(
                batch.data, 0, len(batch.data), batch.payload
            )
        if ending != Ending.END:
            return at, ending, reason
        if records is not None and facts is not None:
            self._filter.put(rebuild_batch(header, records, facts))
        return at + size, Ending.COMPRESSED, Reason.NONE

    def _take_control(self, batch: WindowBatch) -> Any:
        header, rules = batch.header, self._rules
        may_go, aborted = self._transactions.end(
            header.producer_id, control_record(batch), header.last_offset
        )
        if aborted is not None:
            self._aborted.append(aborted)
        horizon = header.delete_horizon_ms
        producer = rules.producers.get(header.producer_id)
        return self._filter.filter_batch(
            batch.data,
            0,
            len(batch.data),
            batch.payload,
            discards=may_go and horizon is not None and horizon <= rules.now_ms,
            # The last thing known of a producer without records: its epoch fences older ones.
            keeps_header=producer is not None
            and not producer.batches
            and producer.epoch == header.producer_epoch,
            is_marker_of_none=may_go,
        )

    def take(self) -> Any:
        return self._filter.take()

    def take_aborted(self) -> Sequence[AbortedTxn]:
        taken, self._aborted = self._aborted, []
        return taken


def control_record(batch: WindowBatch) -> ControlRecord | None:
    """Return the control record of a batch; None if compaction has emptied the batch."""
    if batch.header.record_count == 0:
        return None
    check = Check.CRC | Check.INCLUDE_CONTROL
    record = next(iter(decode_records(batch.data, check=check)))
    return parse_control(record.key, record.value)


def _reason_of(error: CorruptionError) -> Reason:
    try:
        return Reason[error.reason.upper()]
    except KeyError:  # of a control record: its bytes are those that were written
        return Reason.FIELD_LENGTH
