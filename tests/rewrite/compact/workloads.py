"""Random logs to compact, by a seed, and what a reader must find in them afterwards.

Keys come again, some are null; tombstones; headers; every codec; plain, idempotent and transactional
producers, whose transactions overlap, commit, abort or stay open; appends to several segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

import pytest

from stratalog.errors import OutOfOrderSequenceError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Codec
from stratalog.records.model import Record, RecordHeader
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_to_end
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.testing import ManualClock, MemoryFileSystem
from stratalog.testing.compaction_model import ModelCleaned, ModelCleaning, compact
from stratalog.testing.log_model import LogModel, ModelBatch
from tests.crash.promises import contents, split

FOLDER = "/data/t-0"
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (4, 5, 6)
SLOT_BYTES = 24


class Workload:
    """Appends random batches to a log. ``history`` has all of them as they were appended."""

    def __init__(self, seed: int, *, configs: Mapping[str, object] | None = None) -> None:
        self.random = Random(seed)
        self.keys = self.random.choice([2, 7, 30])
        self.configs = configs or {
            "internal.segment.bytes": self.random.choice([450, 800, 2000]),
            "index.interval.bytes": self.random.choice([0, 100, 4096]),
            "segment.index.bytes": self.random.choice([120, 10 << 20]),
            "delete.retention.ms": self.random.choice([0, 1000, 86_400_000]),
            "message.timestamp.type": self.random.choice(
                ["CreateTime", "CreateTime", "LogAppendTime"]
            ),
            "message.timestamp.after.max.ms": 1 << 60,
            "file.delete.delay.ms": 0,
        }
        self.config = LogConfig.of(self.configs)
        self.serial = 0
        #: The last batch of each producer, as it was sent, and where it went.
        self.last_sent: dict[int, tuple[bytes, AppendResult]] = {}
        self.sequences: dict[int, int] = {}
        self.open_txns: set[int] = set()
        self.history: list[ModelBatch] = []

    def run(self, log: PartitionLog, steps: int) -> None:
        """Append; note what was appended."""
        for _ in range(steps):
            kind = self.random.choice(["plain", "idempotent", "txn", "txn", "end", "end"])
            if kind == "plain":
                log.append(self.batch(log.clock.now_ms()))
            elif kind == "idempotent":
                self.send(log, self.random.choice(IDEMPOTENT))
            elif kind == "txn":
                self.send(log, self.random.choice(TRANSACTIONAL), is_transactional=True)
            elif self.open_txns:
                self.end(log, self.random.choice(sorted(self.open_txns)))
        self.note(log)

    def note(self, log: PartitionLog) -> None:
        end = self.history[-1].next_offset if self.history else 0
        self.history += [batch for batch in batches_of(log) if batch.base_offset >= end]

    def end_all(self, log: PartitionLog) -> None:
        for producer in sorted(self.open_txns):
            self.end(log, producer)
        self.note(log)

    def send(self, log: PartitionLog, producer: int, *, is_transactional: bool = False) -> None:
        sequence = self.sequences.get(producer, 0)
        data = self.batch(
            log.clock.now_ms(),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        answer = log.append(data)
        assert not answer.is_duplicate
        self.last_sent[producer] = data, answer
        self.sequences[producer] = sequence + answer.last_offset - answer.first_offset + 1
        if is_transactional:
            self.open_txns.add(producer)

    def end(self, log: PartitionLog, producer: int, kind: ControlType | None = None) -> None:
        kind = kind or self.random.choice([ControlType.ABORT, ControlType.COMMIT])
        marker = build_marker(
            kind, offset=0, timestamp=log.clock.now_ms(), producer_id=producer, producer_epoch=0,
            coordinator_epoch=0,
        )  # fmt: skip
        log.append(marker, origin=Origin.COORDINATOR)
        self.open_txns.discard(producer)

    def batch(self, now_ms: int, **producer: int | bool) -> bytes:
        codec = self.random.choice([Codec.NONE, *Codec])
        records = [self.record(now_ms) for _ in range(self.random.choice([1, 1, 2, 5]))]
        return build_batch(records, BatchOptions(codec=codec, **producer))  # type: ignore[arg-type]

    def record(self, now_ms: int) -> Record:
        pick = self.random
        self.serial += 1
        key = None if pick.random() < 0.05 else b"" if pick.random() < 0.05 else self.key()
        value = None if pick.random() < 0.2 else b"%d" % self.serial + bytes(pick.choice([0, 40]))
        headers = (RecordHeader("h", b"x"), RecordHeader("n", None)) if pick.random() < 0.2 else ()
        return Record(value, key, now_ms + pick.randint(-50, 50), headers)

    def key(self) -> bytes:
        return b"key-%d" % self.random.randrange(self.keys)


def open_log(
    disk: MemoryFileSystem, config: LogConfig, *, is_clean: bool = False, recovery_point: int = 0
) -> PartitionLog:
    return PartitionLog.open(
        FOLDER, config, file_system=disk, clock=disk.clock, watermark="written",
        is_clean=is_clean, recovery_point=recovery_point,
    )  # fmt: skip


def new_disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[FOLDER])


def clock_of(disk: MemoryFileSystem) -> ManualClock:
    assert isinstance(disk.clock, ManualClock)
    return disk.clock


def batches_of(log: PartitionLog) -> list[ModelBatch]:
    """Everything that is in the files of a log."""
    return [ModelBatch.of(part) for part in split(contents(log))]


def clean(
    log: PartitionLog, checkpoint: int | None = None, *, keys_max: int = 1 << 20
) -> CleanableLog:
    """Clean a log in as many rounds as a map of ``keys_max`` keys needs, and compare each round with what
    the model says. Return what there was to clean."""
    now_ms = log.clock.now_ms()
    stored = UnstoredCheckpoint(log, checkpoint, now_ms=now_ms)
    cleanable = stored.find()
    settings = CleanerSettings(dedupe_bytes=SLOT_BYTES * keys_max, load_factor=1.0)
    first_dirty = cleanable.first_dirty
    expected = expect(log, cleanable, first_dirty, keys_max)
    for result in clean_to_end(log, stored, settings, RewriteLimits(), now_ms=now_ms):
        end = expected.end_offset
        check_same(batches_of(log), expected.batches)
        check_aborted(log, expected)
        assert result.end_offset == end, f"the round ended at {result.end_offset}, not at {end}"
        assert result.is_partial == (end < cleanable.first_uncleanable)
        assert end > first_dirty, "a round makes progress"
        first_dirty = end
        expected = expect(log, cleanable, first_dirty, keys_max)
    return cleanable


def expect(
    log: PartitionLog, cleanable: CleanableLog, first_dirty: int, keys_max: int
) -> ModelCleaned:
    return compact(
        batches_of(log),
        ModelCleaning(
            bases=[segment.base_offset for segment in log.segments],
            first_dirty=first_dirty,
            first_uncleanable=cleanable.first_uncleanable,
            keys_max=keys_max,
            now_ms=log.clock.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            producers={each.producer_id: each for each in log.producers},
        ),
    )


def check_same(found: Sequence[ModelBatch], expected: Sequence[ModelBatch]) -> None:
    """Compare batches; the bytes of those that were not changed, too."""
    assert [b.base_offset for b in found] == [b.base_offset for b in expected]
    for batch, wanted in zip(found, expected, strict=True):
        assert batch == wanted._replace(data=wanted.data or batch.data)


def check_aborted(log: PartitionLog, expected: ModelCleaned) -> None:
    """Compare the transaction indexes of the new segments."""
    listed = {
        (entry.producer_id, entry.last_offset)
        for entry in log.view.aborted_between(0, 1 << 62)
        if entry.last_offset < expected.rewritten_end
    }
    assert listed == expected.aborted, "the transaction index lists other aborted transactions"


def check_survivors(seen: Iterable[Record], before: Iterable[Record], cleaned_end: int) -> None:
    """Of the records ``before`` a cleaning that went up to ``cleaned_end``, the newest of each key are seen,
    at their offsets and unchanged; and everything after. Tombstones may be gone."""
    wanted: dict[bytes, Record] = {}
    after = []
    for record in before:
        if record.offset >= cleaned_end:
            after.append(record)
        elif record.key is not None:
            wanted[record.key] = record
    found = list(seen)
    assert [each for each in found if each.offset >= cleaned_end] == after
    below = [each for each in found if each.offset < cleaned_end]
    newest = sorted(wanted.values(), key=lambda record: record.offset)
    assert [r for r in below if r.value is not None] == [r for r in newest if r.value is not None]
    assert all(each.key is not None and wanted[each.key] == each for each in below)


def committed(batches: Sequence[ModelBatch], bound: int) -> list[Record]:
    return LogModel(list(batches)).committed(bound)


def check_producers(log: PartitionLog, workload: Workload) -> None:
    """The last batch of every producer is known, and one that leaves out a sequence number is refused."""
    end = log.log_end
    for producer, (data, answer) in workload.last_sent.items():
        again = log.append(data)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (answer.first_offset, answer.last_offset)
        gap = BatchOptions(
            producer_id=producer,
            producer_epoch=0,
            base_sequence=workload.sequences[producer] + 1,
            is_transactional=producer in TRANSACTIONAL,
        )
        with pytest.raises(OutOfOrderSequenceError):
            log.append(build_batch([Record(b"v", b"k", log.clock.now_ms())], gap))
    assert log.log_end == end
