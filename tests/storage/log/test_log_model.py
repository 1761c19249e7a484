"""The partition log against a list of batches: any order of calls gives what the list gives.

Goal: appends of every kind, reads at every isolation, rolls, cuts, retention, compaction, restarts and
look-ups agree with ``stratalog.testing.log_model``, which has no segments, no indexes and no files. Where a
producer was reloaded the log may know less than the list (one batch, not five; nothing of what was deleted):
there, and only there, two answers are right. Of producers a second list tells, which is never compacted.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stratalog.errors import (
    FencedProducerError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Codec
from stratalog.records.model import Record
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_to_end
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.log.retention import SizeLimit, TimeLimit
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import AppendResult, PartitionLog, Watermark
from stratalog.storage.producers.states import Origin
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import MemoryFileSystem
from stratalog.testing.compaction_model import ModelCleaned, ModelCleaning, compact
from stratalog.testing.log_model import LogModel, ModelBatch, stamped
from tests.crash.promises import contents, read_all, split
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

FOLDER = "/t-0"
IDEMPOTENT = st.sampled_from([1, 2])
TRANSACTIONAL = st.sampled_from([4, 5, 6])
PRODUCER_ERRORS = (FencedProducerError, OutOfOrderSequenceError, TransactionStateError)
#: How far to go from an offset that means something.
near = st.integers(-2, 2)
parts = st.floats(0, 1)


class Log(RuleBasedStateMachine):
    log: PartitionLog
    watermark: Watermark

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFileSystem(folders=[FOLDER])
        self.clock = self.disk.clock
        self.model = LogModel()
        #: The same log, had it never been compacted.
        self.original = LogModel()
        #: Where the last cleaning ended, and where the highest did.
        self.cleaned_to = self.cleaned_max = 0
        self.serial = 0
        self.leader_epoch = 0
        #: Of producers that wrote only below it, the log may know anything.
        self.uncertain_below = 0
        #: Where the log was last loaded from its files: what it knew before, it may have forgotten.
        self.reloaded_at = 0

    @initialize(
        segment_bytes=st.sampled_from([150, 300, 700, 2000]),
        interval=st.sampled_from([0, 100, 300]),
        watermark=st.sampled_from([Watermark.CALLER, Watermark.WRITTEN, Watermark.SYNCED]),
        flush_messages=st.sampled_from([1, 3, 2**62]),
        preallocate=st.booleans(),
        delete_retention=st.sampled_from([0, 500, 10_000]),
    )
    def begin(
        self,
        segment_bytes: int,
        interval: int,
        watermark: Watermark,
        flush_messages: int,
        preallocate: bool,
        delete_retention: int,
    ) -> None:
        self.config = LogConfig.of(
            internal_segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=60,
            delete_retention_ms=delete_retention,
            flush_messages=flush_messages,
            preallocate=preallocate,
        )
        self.watermark = watermark
        self.log = self.opened(is_clean=False, recovery_point=0)

    def opened(self, *, is_clean: bool, recovery_point: int) -> PartitionLog:
        return PartitionLog.open(
            FOLDER,
            self.config,
            file_system=self.disk,
            clock=self.clock,
            recovery_point=recovery_point,
            log_start=self.model.log_start,
            high_watermark=self.model.high_watermark,
            is_clean=is_clean,
            watermark=self.watermark,
        )

    # Appending.

    def records(self, count: int, drift: int) -> list[Record]:
        records = []
        for _ in range(count):
            self.serial += 1
            timestamp = self.clock.now_ms() + 10 * self.serial + drift
            number = self.serial
            key = None if number % 19 == 0 else b"%d" % (number * number % 7)
            value = None if number % 6 == 0 else b"%d" % number
            records.append(Record(value, key, timestamp))
        return records

    def took(self, data: bytes, answer: AppendResult | None, *, first: int | None = None) -> None:
        """The log has appended these batches: so has the model."""
        assert answer is not None
        end = self.model.log_end if first is None else first
        assert answer.first_offset == end
        assert not answer.is_duplicate
        at = 0
        while at < len(data):
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            batch = ModelBatch.of(stamped(data[at : at + size], end, self.leader_epoch))
            self.model.append(batch)
            self.original.append(batch)
            end = self.model.log_end
            at += size
        assert answer.last_offset == end - 1
        self.after_append()

    def after_append(self) -> None:
        if self.watermark is Watermark.WRITTEN:
            self.model.advance_high_watermark(self.model.log_end)
        elif self.watermark is Watermark.SYNCED:
            self.model.advance_high_watermark(self.log.high_watermark)
            assert self.log.high_watermark <= self.log.synced_offset

    @rule(
        batches=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP]),
        drift=st.integers(-40, 40),
        sync=st.booleans(),
    )
    def append(self, batches: list[int], codec: Codec, drift: int, sync: bool) -> None:
        data = b"".join(
            build_batch(self.records(count, drift), BatchOptions(codec=codec)) for count in batches
        )
        if len(data) > self.config.effective_segment_bytes:
            data = build_batch(self.records(1, drift))
        self.took(data, self.log.append(data, leader_epoch=self.leader_epoch, sync=sync))

    @rule(count=st.integers(1, 3), gap=st.sampled_from([0, 0, 0, 1, 7, -1, -3]), sync=st.booleans())
    def append_as_follower(self, count: int, gap: int, sync: bool) -> None:
        first = max(self.model.log_end + gap, 0)
        data = stamped(build_batch(self.records(count, 0)), first, self.leader_epoch)
        if first < self.model.log_end:
            with pytest.raises(OffsetOrderError):
                self.log.append_as_follower(data)
            return
        self.took(data, self.log.append_as_follower(data, sync=sync), first=first)

    @rule(
        producer=st.one_of(IDEMPOTENT, TRANSACTIONAL),
        what=st.sampled_from(["next", "next", "next", "again", "gap", "new epoch", "old epoch"]),
        back=st.integers(1, 7),
        count=st.integers(1, 2),
        turns=st.integers(0, 9),
        sync=st.booleans(),
    )
    def append_of_producer(
        self, producer: int, what: str, back: int, count: int, turns: int, sync: bool
    ) -> None:
        model = self.original
        batches = model.batches_of(producer)
        epoch = max(model.epoch_of(producer), 0)
        sequence = (batches[-1].last_sequence + 1) % 2**31 if batches else 0
        in_txn = producer >= 4
        if turns == 0:
            in_txn = not in_txn
        match what:
            case "gap":
                sequence += back
            case "new epoch":
                epoch, sequence = epoch + 1, 0
            case "old epoch" if epoch:
                epoch -= 1
            case "again" if batches:
                data = batches[-min(back, len(batches))].as_sent
                return self.send(data, sync)
        data = build_batch(
            self.records(count, 0),
            BatchOptions(
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=in_txn,
            ),
        )
        return self.send(data, sync)

    @rule(producer=IDEMPOTENT, count=st.integers(5, 8), back=st.integers(3, 7))
    def append_and_repeat(self, producer: int, count: int, back: int) -> None:
        """Enough batches of one producer that the oldest are forgotten, then one of them again."""
        for _ in range(count):
            self.append_of_producer(producer, "next", 1, 1, 9, False)
        self.append_of_producer(producer, "again", back, 1, 9, False)

    def send(self, data: bytes, sync: bool) -> None:
        """What the list says, or what a log may say that knows less than the list."""
        batch = ModelBatch.of(stamped(data, 0, self.leader_epoch))
        rights = self.rights(batch)
        try:
            answer = self.log.append(data, leader_epoch=self.leader_epoch, sync=sync)
        except ProducerError as error:
            if type(error) not in rights:
                raise AssertionError(f"not one of {rights}") from error
            return
        if answer.is_duplicate:
            assert (answer.first_offset, answer.last_offset) in rights
            self.after_append()
        else:
            assert None in rights, f"appended, though {rights} was right"
            if rights[0] is not None:
                self.forget(batch.producer_id)
            self.took(data, answer)

    def forget(self, producer: int) -> None:
        """The log has shown that it knows nothing of a producer any more, nor of its transaction."""
        kept = [batch for batch in self.original.batches if batch.producer_id != producer]
        self.original.batches = kept

    def rights(self, batch: ModelBatch) -> list[object]:
        """The right answers: an error, where a duplicate stands, or None for an append."""
        model, producer = self.original, batch.producer_id
        epoch, batches = model.epoch_of(producer), model.batches_of(producer)
        newest = max(
            [b.last_offset for b in model.batches if b.producer_id == producer], default=-1
        )
        # Deleted since, and loaded since: then it may be forgotten altogether.
        maybe: list[object] = [None] if newest < min(self.model.log_start, self.reloaded_at) else []
        if newest < self.uncertain_below:
            maybe += [None, *PRODUCER_ERRORS]
            maybe += [(b.base_offset, b.last_offset) for b in batches]
        if batch.producer_epoch == epoch:
            for back, known in enumerate(reversed(batches[-5:])):
                if (known.base_sequence, known.last_sequence) == (
                    batch.base_sequence,
                    batch.last_sequence,
                ):
                    answer = (known.base_offset, known.last_offset)
                    if back == 0 or known.last_offset >= self.reloaded_at:
                        return [answer, *maybe]
                    # A snapshot tells of one batch only; what follows it is read from the log again.
                    return [answer, OutOfOrderSequenceError, *maybe]
        if batch.producer_epoch < epoch:
            return [FencedProducerError, *maybe]
        if epoch != -1:
            same = batch.producer_epoch == epoch
            last = batches[-1].last_sequence if batches and same else -1
            if batch.base_sequence != (last + 1) % 2**31:
                return [OutOfOrderSequenceError, *maybe]
        if model.open_since(producer) is not None and not batch.is_transactional:
            return [TransactionStateError, *maybe]
        return [None, *maybe]

    @rule(
        producer=TRANSACTIONAL,
        kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        bump=st.sampled_from([0, 0, 1, -1]),
        sync=st.booleans(),
    )
    def end_transaction(self, producer: int, kind: ControlType, bump: int, sync: bool) -> None:
        model = self.original
        known = model.epoch_of(producer)
        data = build_marker(
            kind,
            offset=0,
            timestamp=self.clock.now_ms() + 10 * self.serial,
            producer_id=producer,
            producer_epoch=max(known + bump, 0),
            coordinator_epoch=0,
        )
        newest = max(
            [b.last_offset for b in model.batches if b.producer_id == producer], default=-1
        )
        is_known = newest >= max(min(self.model.log_start, self.reloaded_at), self.uncertain_below)
        try:
            answer = self.log.append(
                data, leader_epoch=self.leader_epoch, origin=Origin.COORDINATOR, sync=sync
            )
        except FencedProducerError:
            assert known + bump < known or not is_known
            return
        assert max(known + bump, 0) >= known or not is_known
        self.took(data, answer)

    @rule(
        producers=st.lists(TRANSACTIONAL, min_size=1, max_size=4),
        kinds=st.lists(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]), max_size=3),
        sync=st.booleans(),
    )
    def transact(self, producers: list[int], kinds: list[ControlType], sync: bool) -> None:
        """Transactions that overlap; some stay open."""
        for producer in producers:
            self.append_of_producer(producer, "next", 1, 1, 9, sync)
        for producer, kind in zip(producers, kinds, strict=False):
            self.end_transaction(producer, kind, 0, sync)

    @rule(keys_max=st.sampled_from([1, 4, 1 << 20]), again=st.booleans())
    def compact_all(self, keys_max: int, again: bool) -> None:
        """Nothing but an open transaction keeps a record from being compacted."""
        self.roll()
        self.sync()
        if self.watermark is Watermark.CALLER:
            self.advance_high_watermark(1)
        self.compact(keys_max, again)

    # Changing. One rule for all, so that most steps are appends.

    @rule(
        what=st.sampled_from(
            ["roll", "roll", "flush", "sync", "high watermark", "high watermark", "cut", "cut",
             "restart", "start", "size", "time", "lead", "clean", "clean", "kill", "kill",
             "compact", "compact", "compact"]
        ),
        part=parts,
        back=st.one_of(st.integers(-1, 6), st.integers(-1, 60)),
    )  # fmt: skip
    def change(self, what: str, part: float, back: int) -> None:
        match what:
            case "roll":
                self.roll()
            case "flush":
                self.flush()
            case "sync":
                self.sync()
            case "high watermark" if self.watermark is Watermark.CALLER:
                self.advance_high_watermark(part)
            case "cut":
                self.truncate(back)
            case "restart" if back % 4 == 0:
                self.restart(back)
            case "start":
                self.advance_start(part)
            case "size":
                self.retain_by_size((0, 100, 400, 900)[back % 4])
            case "time":
                self.retain_by_time(10 * back)
            case "lead":
                self.lead(1 + back % 3)
            case "compact":
                self.compact(keys_max=(1, 3, 1 << 20)[back % 3], again=part < 0.2)
            case "clean":
                self.reopen_after_an_orderly_stop()
            case "kill":
                self.reopen_after_a_kill(trust=back % 2 == 0)

    def roll(self) -> None:
        has_records = self.log.segments[-1].size_bytes > 0
        assert self.log.roll() == has_records
        assert self.log.segments[-1].size_bytes == 0

    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.model.log_end
        self.model.advance_high_watermark(self.log.high_watermark)

    def sync(self) -> None:
        assert self.log.sync() == self.model.log_end
        if self.watermark is Watermark.SYNCED:
            self.model.advance_high_watermark(self.model.log_end)

    def advance_high_watermark(self, part: float) -> None:
        offset = round(part * self.model.log_end)
        self.log.advance_high_watermark(offset)
        self.model.advance_high_watermark(offset)

    def truncate(self, back: int) -> None:
        offset = max(self.model.log_end - back, 0)
        assert self.log.truncate(offset) == (offset < self.model.log_end)
        if offset < self.cleaned_max:
            # What was superseded by something that is truncated now is gone, with what it told of producers.
            self.uncertain_below = max(self.uncertain_below, offset)
            self.cleaned_to = self.cleaned_max = offset
        self.model.truncate(offset)
        self.original.truncate(offset)
        self.reloaded_at = self.model.log_end if back > 0 else self.reloaded_at

    def restart(self, step: int) -> None:
        offset = max(self.model.log_end + step, 0)
        self.log.restart(offset)
        self.model.restart(offset)
        self.original.restart(offset)
        self.cleaned_to = self.cleaned_max = self.uncertain_below = 0

    def advance_start(self, part: float) -> None:
        model = self.model
        offset = model.log_start + round(part * (model.high_watermark - model.log_start))
        assert self.log.advance_start(offset) == (offset > model.log_start)
        model.advance_start(offset)
        with pytest.raises(OffsetOutOfRangeError):
            self.log.advance_start(model.high_watermark + 1)

    def retain_by_size(self, limit: int) -> None:
        size = self.log.size_bytes
        plan = self.log.retain((SizeLimit(limit),))
        assert self.log.size_bytes >= min(limit, size)
        self.retained(len(plan.deletions))

    def retain_by_time(self, age: int) -> None:
        limit = self.clock.now_ms() + 10 * self.serial - age
        before = self.log.segments
        plan = self.log.retain((TimeLimit(0, limit),))
        for each in before[: len(plan.deletions)]:
            times = [r.timestamp for b in self.of_segment(before, each) for r in b.records]
            assert all(time < limit for time in times), "too young to be deleted"
        self.retained(len(plan.deletions))

    def retained(self, deleted: int) -> None:
        if deleted:
            assert self.log.log_start <= self.model.high_watermark
            assert self.log.segments[0].base_offset <= self.log.log_start
            self.model.advance_start(self.log.log_start)

    def compact(self, keys_max: int, again: bool) -> None:
        """Clean the log in rounds; from its start if ``again``. The list says what is left of each batch."""
        log = self.log
        self.clock.advance(300)  # type: ignore[attr-defined]
        now_ms = self.clock.now_ms()
        checkpoint = None if again else self.cleaned_to
        stored = UnstoredCheckpoint(log, checkpoint, now_ms=now_ms)
        cleanable = stored.find()
        settings = CleanerSettings(24 * keys_max, load_factor=1.0)
        expected = self.compacted(cleanable, cleanable.first_dirty, keys_max)
        for result in clean_to_end(log, stored, settings, RewriteLimits(), now_ms=now_ms):
            assert result.end_offset == expected.end_offset
            self.take_compacted(expected.batches)
            self.cleaned_to = result.end_offset
            self.cleaned_max = max(self.cleaned_max, self.cleaned_to)
            expected = self.compacted(cleanable, result.end_offset, keys_max)

    def compacted(self, cleanable: CleanableLog, first_dirty: int, keys_max: int) -> ModelCleaned:
        bases = [segment.base_offset for segment in self.log.segments]
        there = [batch for batch in self.model.batches if batch.base_offset >= bases[0]]
        cleaning = ModelCleaning(
            bases=bases,
            first_dirty=first_dirty,
            first_uncleanable=cleanable.first_uncleanable,
            keys_max=keys_max,
            now_ms=self.clock.now_ms(),
            delete_retention_ms=self.config.delete_retention_ms,
            producers={each.producer_id: each for each in self.log.producers},
        )
        return compact(there, cleaning)

    def take_compacted(self, expected: list[ModelBatch]) -> None:
        """The log is what the list says; of batches that were changed, the list takes the bytes."""
        found = [ModelBatch.of(part) for part in split(contents(self.log))]
        assert [batch.base_offset for batch in found] == [b.base_offset for b in expected]
        for batch, wanted in zip(found, expected, strict=True):
            assert batch == wanted._replace(data=wanted.data or batch.data)
        first = self.log.segments[0].base_offset
        below = [batch for batch in self.model.batches if batch.base_offset < first]
        self.model.batches = [*below, *found]

    def lead(self, by: int) -> None:
        self.leader_epoch += by
        self.log.assign_epoch(self.leader_epoch)

    # Starting again.

    def reopen_after_an_orderly_stop(self) -> None:
        self.log.close()
        assert self.log.recovery_point == self.model.log_end
        self.log = self.opened(is_clean=True, recovery_point=self.log.recovery_point)
        self.reopened()
        assert self.log.report.recovered_segments == []

    def reopen_after_a_kill(self, trust: bool) -> None:
        self.log.abandon()
        self.log = self.opened(
            is_clean=False, recovery_point=self.log.recovery_point if trust else 0
        )
        self.reopened()

    def reopened(self) -> None:
        for cut in self.log.report.cuts:
            assert self.config.preallocate
            assert cut.from_offset == self.log.log_end
        assert self.log.report.unknown_files == ()
        model = self.model
        # Where a batch was cut in its middle, only the records tell where the log ends.
        reached = max([b.next_offset for b in model.batches], default=0)
        assert min(reached, model.log_end) <= self.log.log_end <= model.log_end
        model.log_end = self.original.log_end = self.log.log_end
        model.high_watermark = min(model.high_watermark, model.log_end)
        if self.watermark is not Watermark.CALLER:
            model.advance_high_watermark(model.log_end)
        self.reloaded_at = model.log_end

    # Reading.

    @rule(
        part=parts,
        step=near,
        max_bytes=st.sampled_from([0, 1, 80, 200, 1000, 1 << 20]),
        isolation=st.sampled_from(list(Isolation)),
        at_least_one=st.booleans(),
    )
    def read(
        self, part: float, step: int, max_bytes: int, isolation: Isolation, at_least_one: bool
    ) -> None:
        model = self.model
        offset = round(part * model.log_end) + step
        if not model.log_start <= offset <= model.log_end:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.read(offset, max_bytes, isolation)
            assert (caught.value.start, caught.value.end) == (model.log_start, model.log_end)
            return
        answer = self.log.read(offset, max_bytes, isolation, at_least_one=at_least_one)
        bound = self.log.view.bound(isolation)
        wanted = [b for b in model.batches if offset <= b.last_offset < bound]
        if not wanted or (max_bytes == 0 and not at_least_one):
            assert answer.size_bytes == 0
            return
        assert answer.region is not None
        data = answer.region.read()
        assert b"".join(b.data for b in wanted).startswith(data)
        first = len(wanted[0].data)
        assert len(data) >= min(first, max_bytes)
        assert len(data) <= (max(first, max_bytes) if at_least_one else max_bytes)
        assert not at_least_one or len(data) >= first

    @rule()
    def read_everything(self) -> None:
        model = self.model
        for isolation in (Isolation.LOG_END, Isolation.UNCOMMITTED):
            wanted = model.before(self.log.view.bound(isolation))
            assert read_all(self.log, isolation) == wanted
        seen = [
            record
            for batch in read_all(self.log, Isolation.COMMITTED)
            for record in batch.records
            if record.offset >= model.log_start
        ]
        assert seen == model.committed(self.log.last_stable_offset)

    @rule(part=parts, step=near)
    def look_up_time(self, part: float, step: int) -> None:
        timestamp = self.clock.now_ms() + round(part * 10 * self.serial) + 3 * step
        wanted = self.first_of_time(timestamp)
        found = self.log.offset_for_time(timestamp)
        assert (found and found.offset) == (wanted and wanted.offset)
        assert (found and found.timestamp) == (wanted and wanted.timestamp)
        self.look_up_largest_time()

    def first_of_time(self, timestamp: int) -> Record | None:
        """As Kafka does it: only the first segment that reaches this time is searched."""
        segments = self.log.segments
        for segment in segments:
            batches = self.of_segment(segments, segment)
            records = [r for b in batches for r in b.records]
            # An empty batch keeps its largest time.
            if any(batch.max_timestamp >= timestamp for batch in batches):
                return next(
                    (
                        record
                        for record in records
                        if record.timestamp >= timestamp and record.offset >= self.model.log_start
                    ),
                    None,
                )
        return None

    def of_segment(self, segments, segment) -> list[ModelBatch]:
        number = segments.index(segment)
        end = segments[number + 1].base_offset if number + 1 < len(segments) else 2**63
        return [b for b in self.model.batches if segment.base_offset <= b.base_offset < end]

    def look_up_largest_time(self) -> None:
        first = self.log.segments[0].base_offset
        there = [b for b in self.model.batches if b.base_offset >= first]
        found = self.log.offset_of_largest_time()
        if not there:
            assert found is None
            return
        largest = max(batch.max_timestamp for batch in there)
        holders = [batch for batch in there if batch.max_timestamp == largest]
        if found is None:
            assert not holders[0].records, "as in Kafka, where compaction has emptied the batch"
            return
        wanted = [r for b in holders for r in b.records if r.timestamp == largest]
        assert (found.offset, found.timestamp) == (wanted[0].offset, largest)

    # Always.

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log, model = self.log, self.model
        assert (log.log_start, log.log_end) == (model.log_start, model.log_end)
        assert log.high_watermark == model.high_watermark
        assert log.last_stable_offset in self.stable_offsets()
        assert log.recovery_point <= log.log_end
        assert log.synced_offset <= log.log_end
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert bases[0] <= log.log_start or log.log_start == log.log_end
        assert bases[-1] <= log.log_end

    def stable_offsets(self) -> list[int]:
        """Where a marker is at or above the high watermark, a log that was loaded since need not know
        that its transaction is not replicated; and of what was deleted it knows nothing."""
        model = self.model
        offsets = []
        for batches in (
            model.batches,
            [b for b in model.batches if b.last_offset >= model.log_start],
            self.original.batches,
        ):
            unstable = [
                (txn.first_offset, txn.marker_offset)
                for txn in LogModel(list(batches)).transactions()
                if txn.marker_offset is None or txn.marker_offset >= model.high_watermark
            ]
            for forgets in (False, True):
                firsts = [
                    first
                    for first, marker in unstable
                    if marker is None or not forgets or marker >= self.reloaded_at
                ]
                stable = min([*firsts, model.high_watermark])
                offsets.append(max(stable, min(model.log_start, model.high_watermark)))
        return offsets

    @invariant()
    def bytes_agree(self) -> None:
        if hasattr(self, "log"):
            first = self.log.segments[0].base_offset
            there = [b for b in self.model.batches if b.base_offset >= first]
            assert contents(self.log) == b"".join(b.data for b in there)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.read_everything()
            self.log.close()


TestLog = Log.TestCase
TestLog.settings = settings(
    max_examples=sized(25, 60 * SCALE),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
