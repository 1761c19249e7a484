"""Producers against a naive model: everything that was ever appended, looked through again each time.

Goal: any order of appends, markers, expiry, reloads and high watermarks gives the state, the refusals and
the last stable offset that the rules say. The model keeps no state of a producer: it reads the history.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stratalog.errors import (
    FencedCoordinatorError,
    FencedProducerError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from stratalog.records.layout import INT32_MAX
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot
from stratalog.storage.producers.states import Origin, ProducerBatch, ProducerStates
from stratalog.storage.segment.txn_index import AbortedTxn
from tests.scale import SCALE, sized
from tests.storage.producers.producer_batches import ABORT, COMMIT, data, end, says

pytestmark = pytest.mark.scaled

TTL = 100
Refusal = type[ProducerError] | None


class Happening(NamedTuple):
    """A batch that went in. ``coordinator_epoch`` and ``is_abort`` are a marker's."""

    header: BatchHeader
    coordinator_epoch: int | None = None
    is_abort: bool = False
    is_forgotten: bool = False  # as a duplicate: a snapshot keeps the last batch only

    @property
    def is_marker(self) -> bool:
        return self.coordinator_epoch is not None


class Txn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int | None


class History:
    """What was appended, and what the rules say about it."""

    def __init__(self) -> None:
        self.all: list[Happening] = []
        self.known: dict[int, list[Happening]] = {}  # without what expired
        self.reloaded_at = -1  # markers below were seen by an earlier life

    def epoch(self, producer_id: int) -> int:
        of_producer = self.known.get(producer_id)
        return of_producer[-1].header.producer_epoch if of_producer else -1

    def batches(self, producer_id: int) -> list[ProducerBatch]:
        """The last five of the run of the last epoch."""
        found: list[ProducerBatch] = []
        for header, *_, is_forgotten in reversed(self.known.get(producer_id, [])):
            if header.producer_epoch != self.epoch(producer_id) or len(found) == 5:
                break
            if not header.is_control and not is_forgotten:
                found.insert(
                    0,
                    ProducerBatch(
                        header.last_sequence,
                        header.last_offset,
                        header.last_offset - header.base_offset,
                        header.max_timestamp,
                    ),
                )
        return found

    def coordinator_epoch(self, producer_id: int) -> int:
        epochs = [h.coordinator_epoch for h in self.known.get(producer_id, []) if h.is_marker]
        return -1 if not epochs or epochs[-1] is None else epochs[-1]

    def last_timestamp(self, producer_id: int) -> int:
        return self.known[producer_id][-1].header.max_timestamp

    def transactions(self) -> list[Txn]:
        found: list[Txn] = []
        for header, *_ in self.all:
            is_open = [t for t in found if t[0] == header.producer_id and t.last_offset is None]
            if header.is_control and is_open:
                index = found.index(is_open[0])
                found[index] = found[index]._replace(last_offset=header.base_offset)
            elif header.is_transactional and not header.is_control and not is_open:
                found.append(Txn(header.producer_id, header.base_offset, None))
        return found

    def open_since(self, producer_id: int) -> int | None:
        for txn in self.transactions():
            if txn.producer_id == producer_id and txn.last_offset is None:
                return txn.first_offset
        return None

    def first_unstable(self, high_watermark: int) -> int | None:
        unstable = [
            txn.first_offset
            for txn in self.transactions()
            if txn.last_offset is None
            or (txn.last_offset >= high_watermark and txn.last_offset >= self.reloaded_at)
        ]
        return min(unstable, default=None)

    def judge_data(self, header: BatchHeader, origin: Origin) -> Refusal | ProducerBatch:
        producer_id, epoch = header.producer_id, self.epoch(header.producer_id)
        if origin is Origin.REPLICATION:
            return None
        batches = self.batches(producer_id)
        if origin is Origin.CLIENT and header.producer_epoch == epoch:
            for batch in batches:
                if (batch.first_sequence, batch.last_sequence) == (
                    header.base_sequence,
                    header.last_sequence,
                ):
                    return batch
        if header.producer_epoch < epoch:
            return FencedProducerError
        if origin is Origin.CLIENT and epoch != -1:
            last = batches[-1].last_sequence if batches and header.producer_epoch == epoch else -1
            if header.base_sequence != (last + 1) % 2**31:
                return OutOfOrderSequenceError
        if self.open_since(producer_id) is not None and not header.is_transactional:
            return TransactionStateError
        return None

    def judge_marker(self, header: BatchHeader, coordinator_epoch: int, strict: bool) -> Refusal:
        producer_id, epoch = header.producer_id, self.epoch(header.producer_id)
        if header.producer_epoch < epoch:
            return FencedProducerError
        is_same = header.producer_epoch == epoch and epoch != 32767
        if strict and is_same and self.open_since(producer_id) is not None:
            return FencedProducerError
        if coordinator_epoch < self.coordinator_epoch(producer_id):
            return FencedCoordinatorError
        return None

    def note(self, happening: Happening) -> None:
        self.all.append(happening)
        self.known.setdefault(happening.header.producer_id, []).append(happening)

    def index_entry(self, header: BatchHeader) -> AbortedTxn | None:
        """Of the abort marker that comes next."""
        first_offset = self.open_since(header.producer_id)
        if first_offset is None:
            return None
        others = [
            txn.first_offset
            for txn in self.transactions()
            if txn.last_offset is None and txn.producer_id != header.producer_id
        ]
        marker = header.base_offset
        return AbortedTxn(header.producer_id, first_offset, marker, min(others, default=marker + 1))


producer_ids = st.sampled_from([0, 1, 16, 2**33])
steps = st.sampled_from([0, 0, 0, 0, 1, -1])


class Producers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.history = History()
        self.offset = 0
        self.now = 1000
        self.high_watermark = 0

    def next_epoch(self, producer_id: int, step: int) -> int:
        return max(self.history.epoch(producer_id) + step, 0)

    def tick(self, by: int) -> int:
        self.now += by
        return self.now

    @rule(
        producer_id=producer_ids,
        origin=st.sampled_from(
            [Origin.CLIENT, Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION]
        ),
        step=steps,
        sequence=st.sampled_from(
            ["next", "next", "next", "next", "repeat", "zero", "skip", "wrap"]
        ),
        count=st.integers(1, 4),
        which=st.integers(0, 5),
        turns=st.integers(0, 9),
        by=st.integers(0, 9),
    )
    def append(
        self, producer_id: int, origin: Origin, step: int, sequence: str, count: int, which: int,
        turns: int, by: int,
    ) -> None:  # fmt: skip
        batches = self.history.batches(producer_id)
        last = batches[-1].last_sequence if batches else -1
        if sequence == "repeat" and batches:
            again = batches[which % len(batches)]
            base_sequence, count = again.first_sequence, again.offset_delta + 1
        else:
            base_sequence = {"zero": 0, "skip": last + 2, "wrap": INT32_MAX - 1}.get(
                sequence, last + 1
            ) % 2**31
        in_txn = self.history.open_since(producer_id) is not None
        if turns >= 5 or (in_txn and turns == 0):
            in_txn = not in_txn
        header = data(
            producer_id, -1 if origin is Origin.COORDINATOR else base_sequence, self.offset, count,
            epoch=self.next_epoch(producer_id, step), timestamp=self.tick(by), in_txn=in_txn,
        )  # fmt: skip
        verdict = self.history.judge_data(header, origin)
        if isinstance(verdict, type):
            with pytest.raises(verdict):
                self.states.admit([header], origin)
            return
        admission = self.states.admit([header], origin)
        if admission.duplicate is not None:
            assert admission.duplicate == verdict
            return
        assert verdict is None
        self.states.apply(admission)
        assert admission.completed == ()
        self.history.note(Happening(header))
        self.offset += count

    @precondition(lambda self: self.states.ongoing or len(self.history.all) % 4 == 3)
    @rule(
        producer_id=producer_ids,
        origin=st.sampled_from([Origin.COORDINATOR, Origin.COORDINATOR, Origin.REPLICATION]),
        step=steps,
        coordinator_step=steps,
        is_abort=st.booleans(),
        strict=st.booleans(),
        by=st.integers(0, 9),
        of_open=st.integers(0, 3),
    )
    def end_transaction(
        self, producer_id: int, origin: Origin, step: int, coordinator_step: int, is_abort: bool,
        strict: bool, by: int, of_open: int,
    ) -> None:  # fmt: skip
        if self.states.ongoing and of_open:  # ends of empty transactions are dull
            producer_id = self.states.ongoing[of_open % len(self.states.ongoing)][1]
        epoch = self.next_epoch(producer_id, step)
        coordinator_epoch = max(self.history.coordinator_epoch(producer_id) + coordinator_step, 0)
        header = end(producer_id, self.offset, epoch=epoch, timestamp=self.tick(by))
        markers = {self.offset: says(ABORT if is_abort else COMMIT, coordinator_epoch)}
        verdict = None
        if origin is not Origin.REPLICATION:
            verdict = self.history.judge_marker(header, coordinator_epoch, strict)
        if verdict is not None:
            with pytest.raises(verdict):
                self.states.admit([header], origin, markers, strict_markers=strict)
            return
        admission = self.states.admit([header], origin, markers, strict_markers=strict)
        self.states.apply(admission)
        indexed = [self.states.complete(txn) for txn in admission.completed]
        entry = self.history.index_entry(header)
        if entry is None:
            assert indexed == []
        else:
            assert indexed == [entry if is_abort else None]
        self.history.note(Happening(header, coordinator_epoch, is_abort))
        self.offset += 1

    @rule(behind=st.integers(0, 6))
    def advance_the_high_watermark(self, behind: int) -> None:
        self.high_watermark = max(self.high_watermark, self.offset - behind)
        self.states.on_high_watermark(self.high_watermark)

    @rule(by=st.integers(0, 60))
    def expire(self, by: int) -> None:
        self.tick(by)
        expired = self.expired()
        assert self.states.expire(self.now, TTL) == len(expired)
        for producer_id in expired:
            del self.history.known[producer_id]

    def expired(self) -> list[int]:
        return [
            producer_id
            for producer_id in self.history.known
            if self.history.open_since(producer_id) is None
            and self.now - self.history.last_timestamp(producer_id) >= TTL
        ]

    @rule(by=st.integers(0, 60))
    def reload_from_a_snapshot(self, by: int) -> None:
        snapshot = encode_snapshot(self.states.snapshot_entries())
        entries = decode_snapshot(snapshot)
        assert {entry.producer_id for entry in entries} == set(self.history.known)
        self.states = ProducerStates()
        self.tick(by)
        self.states.load(entries, self.offset, now_ms=self.now, ttl_ms=TTL)
        for producer_id in self.expired():
            del self.history.known[producer_id]
        for producer_id, of_producer in self.history.known.items():
            self.history.known[producer_id] = self.kept(producer_id, of_producer)
        self.history.reloaded_at = self.offset

    def kept(self, producer_id: int, of_producer: list[Happening]) -> list[Happening]:
        """Only the last batch is told, and it takes the producer's own timestamp."""
        timestamp = self.history.last_timestamp(producer_id)
        kept = [happening._replace(is_forgotten=True) for happening in of_producer]
        for index in reversed(range(len(kept))):
            header = kept[index].header
            if header.producer_epoch != self.history.epoch(producer_id):
                break
            if not header.is_control:
                if not of_producer[index].is_forgotten:
                    again = data(
                        producer_id, header.base_sequence, header.base_offset, header.record_count,
                        epoch=header.producer_epoch, timestamp=timestamp,
                        in_txn=header.is_transactional,
                    )  # fmt: skip
                    kept[index] = Happening(again)
                break
        return kept

    @invariant()
    def agrees(self) -> None:
        history, states = self.history, self.states
        assert set(states.entries) == set(history.known)
        for producer_id, entry in states.entries.items():
            assert entry.producer_id == producer_id
            assert entry.epoch == history.epoch(producer_id)
            assert list(entry.batches) == history.batches(producer_id)
            assert entry.coordinator_epoch == history.coordinator_epoch(producer_id)
            assert entry.last_timestamp == history.last_timestamp(producer_id)
            assert entry.txn_first_offset == history.open_since(producer_id)
        assert states.ongoing == tuple(
            sorted((t.first_offset, t.producer_id) for t in history.transactions() if t[2] is None)
        )
        for high_watermark in (self.high_watermark, self.offset - 1, self.offset):
            if high_watermark >= self.high_watermark:
                wanted = history.first_unstable(high_watermark)
                assert states.first_unstable_offset(high_watermark) == wanted


TestProducers = Producers.TestCase
TestProducers.settings = settings(
    max_examples=sized(80, 250 * SCALE),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
