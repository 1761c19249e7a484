"""What a log has promised at some moment, and whether it keeps it after a crash.

A promise is a value: every batch that was appended or was being appended, in order, and up to where they must
be there. Whatever comes back must be a run of them without a hole, from the log's start on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from stratalog.storage.names import parse_partition_file
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.testing.log_model import LogModel, ModelBatch

EVERYTHING = 1 << 30


class Promise(NamedTuple):
    """See above. Offsets are compared with those of whole batches."""

    history: tuple[ModelBatch, ...] = ()
    #: Every record below it is there.
    durable_end: int = 0
    #: The log starts here or later, as a checkpoint says …
    start: int = 0
    #: … and no later than it was told to.
    start_max: int = 0
    #: Where the log may end, beyond its records.
    end_max: int = 0
    #: As a checkpoint says.
    high_watermark: int = 0

    def appended(self, *batches: ModelBatch) -> Promise:
        return self._replace(
            history=(*self.history, *batches),
            end_max=max(self.end_max, batches[-1].next_offset),
        )

    def durable(self, offset: int) -> Promise:
        return self if offset <= self.durable_end else self._replace(durable_end=offset)

    def up_to(self, offset: int) -> Promise:
        """Nothing at ``offset`` or behind it is promised any more."""
        ends = [batch.next_offset for batch in self.history if batch.next_offset <= offset]
        return self._replace(
            durable_end=min(self.durable_end, max(ends, default=0)),
            high_watermark=min(self.high_watermark, offset),
        )

    def cut(self, offset: int) -> Promise:
        """The batches from ``offset`` on are gone for good."""
        kept = tuple(batch for batch in self.history if batch.last_offset < offset)
        return self.up_to(offset)._replace(history=kept, end_max=offset)


def contents(log: PartitionLog) -> bytes:
    """All bytes of all segments."""
    view = log.view
    parts = []
    for number, segment in enumerate(view.segments.segments):
        data = bytearray(view.limit(number))
        read = segment.log.read_into(0, memoryview(data))
        assert read == len(data), f"segment {segment.base_offset} is {read} bytes of {len(data)}"
        parts.append(data)
    return b"".join(parts)


def split(data: bytes | bytearray) -> list[bytes]:
    """The batches of a region; the last may be cut off."""
    parts = []
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        parts.append(bytes(data[at:end]))
        at = end
    return parts


def check_run(log: PartitionLog, promise: Promise) -> tuple[ModelBatch, ...]:
    """The log is a run of the history, whole where it was promised (D1, D2, D4). Answers the history up
    to the log's end."""
    history, start, end = promise.history, log.log_start, log.log_end
    data = contents(log)
    first = next((n for n, b in enumerate(history) if data.startswith(b.data)), None)
    if not data:
        first = len(history)
        while first and history[first - 1].next_offset > end:
            first -= 1
    assert first is not None, f"what the log begins with was never appended: {data[:61].hex()}"
    at, last = 0, first
    while at < len(data):
        assert last < len(history), f"{len(data) - at} bytes behind all that was ever appended"
        batch = history[last]
        assert data.startswith(batch.data, at), (
            f"at byte {at} stands another batch than that of offset {batch.base_offset}"
        )
        at += len(batch.data)
        last += 1
    reached = history[last - 1].next_offset if last > first else end
    assert reached <= end <= max(promise.end_max, reached), f"the end {end} is not {reached}"
    assert end >= promise.durable_end, (
        f"the log ends at {end}: synced records up to {promise.durable_end} are lost"
    )
    assert promise.start <= start <= promise.start_max, (
        f"the log starts at {start}, not within {promise.start} and {promise.start_max}"
    )
    for batch in history[:first]:
        assert batch.last_offset < start or batch.base_offset >= promise.durable_end, (
            f"offset {batch.base_offset} is missing: the log starts at {start}"
        )
    return history[:last]


def check_invariants(log: PartitionLog, promise: Promise) -> None:
    """What holds of every log at every moment (T4, and part 14.3 of the facts)."""
    start, stable = log.log_start, log.last_stable_offset
    assert start <= stable <= log.high_watermark <= log.log_end
    assert log.high_watermark >= min(promise.high_watermark, log.log_end)
    assert log.recovery_point <= log.log_end
    assert log.synced_offset <= log.log_end
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert bases[0] <= start
    assert bases[-1] <= log.log_end
    epochs = log.epochs
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs))
    assert not epochs or epochs[-1].start_offset <= log.log_end
    for entry in log.producers:
        assert len(entry.batches) <= 5
        assert all(
            (a.last_sequence + 1) & 0x7FFFFFFF == b.first_sequence
            for a, b in pairwise(entry.batches)
        )


def check_epochs(log: PartitionLog, history: tuple[ModelBatch, ...], promise: Promise) -> None:
    """Every batch is of the epoch that the epochs say. They are cut when the log's start is advanced,
    which may be forgotten itself when no checkpoint follows."""
    for batch in history:
        if batch.base_offset >= log.log_start:
            found = [e.epoch for e in log.epochs if e.start_offset <= batch.base_offset]
            if not found and batch.base_offset < promise.start_max:
                continue
            assert found[-1:] == [batch.leader_epoch], (
                f"offset {batch.base_offset} was written in epoch {batch.leader_epoch}, "
                f"the file says {log.epochs}"
            )


def check_lookups(log: PartitionLog, history: tuple[ModelBatch, ...]) -> None:
    """Look-ups by offset and by time answer what a walk over all batches would (I2)."""
    model = LogModel(list(history), log.log_start, log.log_end)
    view = log.view
    there = [b for b in history if b.last_offset >= log.log_start]
    for batch in there:
        found = view.find(max(batch.base_offset, log.log_start))
        assert found is not None, f"offset {batch.base_offset} is not found"
        assert found[1].base_offset == batch.base_offset
        assert found[1].size_bytes == len(batch.data)
    for batch in there[:: max(1, len(there) // 3)]:
        time = batch.records[-1].timestamp
        wanted, answer = model.at_time(time), log.offset_for_time(time)
        if answer is None and _hidden_by_start(log, history, time):
            continue
        assert wanted is not None
        assert answer is not None, f"time {time} is not found, it is at offset {wanted.offset}"
        assert (answer.offset, answer.timestamp) == (wanted.offset, wanted.timestamp)


def _hidden_by_start(log: PartitionLog, history: tuple[ModelBatch, ...], time: int) -> bool:
    """As Kafka does it: where a segment has that time only below the log's start, no other is asked."""
    return any(
        record.timestamp >= time
        for batch in history
        for record in batch.records
        if log.segments[0].base_offset <= record.offset < log.log_start
    )


def read_all(log: PartitionLog, isolation: Isolation) -> list[ModelBatch]:
    """Read to the end as a consumer does, and drop what is aborted."""
    offset = log.log_start
    found: list[ModelBatch] = []
    while True:
        read = log.read(offset, EVERYTHING, isolation)
        if read.region is None:
            return found
        batches = [ModelBatch.of(part) for part in split(read.region.read())]
        aborted = read.aborted or ()
        found += [
            batch
            for batch in batches
            if isolation is not Isolation.COMMITTED
            or (
                batch.marker is None
                and not (
                    batch.is_transactional
                    and any(
                        txn.producer_id == batch.producer_id
                        and txn.first_offset <= batch.base_offset < txn.last_offset
                        for txn in aborted
                    )
                )
            )
        ]
        offset = batches[-1].next_offset


def check_committed(log: PartitionLog, history: tuple[ModelBatch, ...]) -> None:
    """read_committed shows all that is decided, and nothing else (T1)."""
    known = [b for b in history if b.last_offset >= log.log_start]
    models = [
        LogModel(list(batches), log.log_start, log.log_end, log.high_watermark)
        for batches in (history, known)
    ]
    stable = [model.last_stable_offset() for model in models]
    assert log.last_stable_offset in stable, f"{log.last_stable_offset} is stable, not {stable}"
    seen = [
        record.offset
        for batch in read_all(log, Isolation.COMMITTED)
        for record in batch.records
        if record.offset >= log.log_start
    ]
    wanted = [record.offset for record in models[0].committed(log.last_stable_offset)]
    assert seen == wanted, f"read_committed shows {seen}, not {wanted}"


def check_retries(log: PartitionLog, history: tuple[ModelBatch, ...]) -> None:
    """The last batch of every producer, sent again, is known: nothing is appended (P1)."""
    model = LogModel(list(history), log.log_start, log.log_end)
    for producer_id in {b.producer_id for b in history if b.producer_id >= 0}:
        batches = model.batches_of(producer_id)
        if not batches or batches[-1].last_offset < log.log_start:
            continue
        end, last = log.log_end, batches[-1]
        answer = log.append(last.as_sent, leader_epoch=last.leader_epoch)
        assert answer.is_duplicate, f"producer {producer_id}: {last.base_sequence} is there twice"
        assert (answer.first_offset, answer.last_offset) == (last.base_offset, last.last_offset)
        assert log.log_end == end


def check_files(names: list[str]) -> None:
    """Nothing is left behind that is not a log's."""
    for name in names:
        known = parse_partition_file(name) or name.startswith("leader-epoch-checkpoint")
        assert known or name.endswith(".cut"), f"a file {name} is left"
        assert not name.endswith((".cleaned", ".swap")), f"{name} is left unsettled"
