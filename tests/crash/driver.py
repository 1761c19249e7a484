"""A log in the hands of a scenario: what it is told to do, what that promises, and whether it holds.

A small language. Before a change begins, what may come of it is noted; when it is acknowledged, what must be
there from now on. The check recovers a disk and looks whether all of it is.
"""

from __future__ import annotations

from typing import Protocol

from stratalog.clock import Clock
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.retention import SizeLimit
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.producers.states import Origin
from stratalog.testing import Facts, ManualClock, MemoryFileSystem
from stratalog.testing.log_model import LogModel, ModelBatch, stamped
from tests.crash.keeper import Keeper
from tests.crash.promises import (
    Promise,
    check_committed,
    check_epochs,
    check_files,
    check_invariants,
    check_lookups,
    check_retries,
    check_run,
)

FOLDER = "/data/t-0"

CONFIG = LogConfig.of(
    internal_segment_bytes=400,
    segment_index_bytes=120,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
)
#: Segments of more than one sector of a disk.
WIDE = LogConfig.of(
    internal_segment_bytes=1500,
    segment_index_bytes=240,
    index_interval_bytes=150,
    file_delete_delay_ms=1000,
)


class Sink(Protocol):
    def note(self, fact: Promise) -> None: ...


def new_disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[FOLDER])


class Driver:
    """A log in the hands of a scenario."""

    keeper: Keeper

    def __init__(
        self,
        file_system: FileSystem,
        facts: Sink,
        *,
        clock: Clock | None = None,
        promise: Promise | None = None,
        config: LogConfig = CONFIG,
        watermark: Watermark = Watermark.SYNCED,
        serial: int = 0,
        keeper: type[Keeper] = Keeper,
    ) -> None:
        self.file_system = file_system
        self.facts = facts
        self.clock = clock or getattr(file_system, "clock", None) or ManualClock()
        self.promise = promise or Promise()
        self.config = config
        self.watermark = watermark
        self.serial = serial
        self.leader_epoch = 0
        self.is_closed = True
        self.is_cutting = False
        self._keeper = keeper
        self.open()

    @property
    def log(self) -> PartitionLog:
        return self.keeper.log

    def note(self, promise: Promise) -> None:
        if promise is not self.promise:
            self.promise = promise
            self.facts.note(promise)

    def settle(self) -> None:
        """What the log says of itself now is a promise, too."""
        log = self.log
        shown = log.high_watermark if self.watermark is Watermark.SYNCED else 0
        self.note(self.promise.durable(max(log.synced_offset, log.recovery_point, shown)))

    def open(self) -> None:
        self.keeper = self._keeper(
            self.file_system, self.clock, self.config, watermark=self.watermark
        )
        self.is_closed = False
        self.leader_epoch = max([self.leader_epoch, *(each.epoch for each in self.log.epochs)])
        self.settle()

    def close(self) -> None:
        end = self.log.log_end
        self.is_closed = True
        self.keeper.close()
        if self.log.failure is None:
            self.note(self.promise.durable(end))

    def reopen(self) -> None:
        self.close()
        self.open()

    def die(self) -> None:
        """Killed and started again, on a machine that runs on."""
        self.keeper.abandon()
        self.is_closed = True
        self.open()

    # Appending.

    def append(
        self,
        count: int = 1,
        *,
        size: int = 6,
        sync: bool = True,
        producer: int = -1,
        txn: bool = False,
        bump: bool = False,
    ) -> ModelBatch:
        """A batch of ``count`` records; of an idempotent producer, the next in its order."""
        epoch = sequence = -1
        if producer >= 0:
            model = LogModel(list(self.promise.history))
            before = model.batches_of(producer)
            epoch = max(0, model.epoch_of(producer)) + bump
            sequence = before[-1].last_sequence + 1 if before and not bump else 0
        data = build_batch(
            self.records(count, size),
            BatchOptions(
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=txn,
            ),
        )
        return self.send(data, sync=sync)

    def records(self, count: int, size: int) -> list[Record]:
        records = []
        for _ in range(count):
            self.serial += 1
            value = b"%d" % self.serial
            # Times that mostly rise, and sometimes fall.
            late = self.serial * 10 - (25 if self.serial % 4 == 0 else 0)
            records.append(Record(value.ljust(size, b"."), timestamp=self.clock.now_ms() + late))
        return records

    def send(self, data: bytes, *, sync: bool = True, origin: Origin = Origin.CLIENT) -> ModelBatch:
        batch = ModelBatch.of(stamped(data, self.log.log_end, self.leader_epoch))
        self.note(self.promise.appended(batch))
        answer = self.log.append(data, leader_epoch=self.leader_epoch, origin=origin, sync=sync)
        assert (answer.first_offset, answer.last_offset) == (batch.base_offset, batch.last_offset)
        assert not answer.is_duplicate
        if sync:
            self.note(self.promise.durable(batch.next_offset))
        self.settle()
        return batch

    def end(
        self, producer: int, kind: ControlType, *, sync: bool = True, bump: bool = False
    ) -> None:
        """The marker that ends a transaction."""
        epoch = LogModel(list(self.promise.history)).epoch_of(producer) + bump
        data = build_marker(
            kind,
            offset=0,
            timestamp=self.clock.now_ms(),
            producer_id=producer,
            producer_epoch=max(0, epoch),
            coordinator_epoch=0,
        )
        self.send(data, sync=sync, origin=Origin.COORDINATOR)

    def follow(self, count: int = 1, *, gap: int = 0, sync: bool = False) -> None:
        """A batch from a leader, that brings its offset."""
        data = build_batch(self.records(count, 6))
        batch = ModelBatch.of(stamped(data, self.log.log_end + gap, self.leader_epoch))
        self.note(self.promise.appended(batch))
        self.log.append_as_follower(batch.data, sync=sync)
        self.settle()

    def retry(self, producer: int) -> None:
        """The last batch of a producer once more."""
        last = LogModel(list(self.promise.history)).batches_of(producer)[-1]
        answer = self.log.append(last.as_sent, leader_epoch=self.leader_epoch, sync=True)
        assert answer.is_duplicate
        assert answer.first_offset == last.base_offset
        self.note(self.promise.durable(answer.next_offset))

    # Everything else.

    def sync(self) -> None:
        self.log.sync()
        self.settle()

    def flush(self) -> None:
        self.log.flush()
        self.settle()

    def roll(self) -> None:
        self.log.roll()
        self.settle()

    def checkpoint(self) -> None:
        start, high_watermark = self.log.log_start, self.log.high_watermark
        self.keeper.checkpoint()
        self.note(self.promise._replace(start=start, high_watermark=high_watermark))

    def lead(self, epoch: int) -> None:
        self.leader_epoch = epoch
        self.log.assign_epoch(epoch)

    def truncate(self, offset: int) -> None:
        """Cut, and have the checkpoints follow at once, as Kafka's manager does."""
        self.note(
            self.promise.up_to(offset)._replace(
                start=min(self.promise.start, offset),
                end_max=max(self.promise.end_max, offset),
            )
        )
        self.is_cutting = True
        self.log.truncate(offset)
        self.is_cutting = False
        self.note(self.promise.cut(offset))
        self.checkpoint()

    def restart(self, offset: int) -> None:
        self.note(
            self.promise._replace(
                durable_end=0,
                start=0,
                start_max=1 << 40,
                end_max=max(offset, self.promise.end_max),
                high_watermark=0,
            )
        )
        self.is_cutting = True
        self.log.restart(offset)
        self.is_cutting = False
        self.note(Promise(durable_end=offset, start=offset, start_max=offset, end_max=offset))
        self.checkpoint()

    def advance_start(self, offset: int) -> None:
        self.note(self.promise._replace(start_max=max(self.promise.start_max, offset)))
        self.log.advance_start(offset)
        self.settle()

    def retain(self, limit: int = 0) -> None:
        """Delete what is above ``limit`` bytes, and no more."""
        end, size = self.log.high_watermark, self.log.size_bytes
        self.note(
            self.promise._replace(
                start_max=max(self.promise.start_max, end), end_max=max(self.promise.end_max, end)
            )
        )
        self.log.retain((SizeLimit(limit),))
        assert self.log.size_bytes >= min(size, limit), "more was deleted than was to be"
        self.settle()

    def remove_due(self) -> None:
        self.log.remove_due(all_of_them=True)


class Check:
    """Recover and look: everything that was promised is there, and the log works."""

    def __init__(
        self,
        *,
        config: LogConfig = CONFIG,
        watermark: Watermark = Watermark.SYNCED,
        keeper: type[Keeper] = Keeper,
    ) -> None:
        self.config = config
        self.watermark = watermark
        self.keeper = keeper

    def __call__(self, file_system: MemoryFileSystem, facts: Facts[Promise]) -> None:
        promise = facts[-1] if facts else Promise()
        keeper = self.keeper(file_system, file_system.clock, self.config, watermark=self.watermark)
        log = keeper.log
        history = check_run(log, promise)
        check_invariants(log, promise)
        check_epochs(log, history, promise)
        # What came through and is shown is on the disk now; what did not is gone for good.
        is_shown = self.watermark is Watermark.SYNCED
        promise = promise._replace(
            history=history,
            durable_end=log.log_end if is_shown else log.synced_offset,
            end_max=log.log_end,
        )
        facts.note(promise)
        check_lookups(log, history)
        check_committed(log, history)
        check_retries(log, history)
        check_files([entry.name for entry in file_system.list_dir(FOLDER)])
        self.go_on(keeper, facts, promise)

    def go_on(self, keeper: Keeper, facts: Facts[Promise], promise: Promise) -> None:
        """The log takes records again, and what it acknowledges stays."""
        log = keeper.log
        data = build_batch([Record(b"after %d" % len(facts), timestamp=log.log_end)])
        epoch = log.epochs[-1].epoch if log.epochs else 0
        batch = ModelBatch.of(stamped(data, log.log_end, epoch))
        promise = promise.appended(batch)
        facts.note(promise)
        log.append(data, leader_epoch=epoch, sync=True)
        facts.note(promise.durable(batch.next_offset))
