"""Producers and transactions of one partition, case by case: who may append, what is a duplicate, what a
marker does, and up to where read_committed readers may go."""

from __future__ import annotations

import pytest

from stratalog.errors import (
    CorruptionError,
    FencedCoordinatorError,
    FencedProducerError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from stratalog.records.layout import INT32_MAX
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.open_transactions import CompletedTxn
from stratalog.storage.producers.states import Admission, Origin, ProducerBatch, ProducerStates
from stratalog.storage.segment.txn_index import AbortedTxn
from tests.storage.producers.producer_batches import (
    ABORT,
    COMMIT,
    T,
    append,
    data,
    end,
    finish,
    says,
)

CLIENT, COORDINATOR, REPLICATION = Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION
P, Q = 7, 8


@pytest.fixture
def states() -> ProducerStates:
    return ProducerStates()


def refused(
    states: ProducerStates,
    header: BatchHeader,
    error: type[ProducerError],
    *words: str,
    origin: Origin = CLIENT,
) -> None:
    """The header is refused for this reason, which the text tells, and nothing has changed."""
    before = (dict(states.entries), states.ongoing)
    with pytest.raises(error) as caught:
        states.admit([header], origin)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert (dict(states.entries), states.ongoing) == before


# --- sequences -----------------------------------------------------------------------------------


def test_batches_follow_one_another(states: ProducerStates) -> None:
    append(states, data(P, 0, 10, 5))
    append(states, data(P, 5, 20, 1))
    append(states, data(P, 6, 30, 2, timestamp=T + 1))
    entry = states.entries[P]
    assert [(b.first_sequence, b.last_sequence) for b in entry.batches] == [(0, 4), (5, 5), (6, 7)]
    assert [(b.first_offset, b.last_offset) for b in entry.batches] == [
        (10, 14),
        (20, 20),
        (30, 31),
    ]
    assert (entry.epoch, entry.last_timestamp, entry.coordinator_epoch) == (0, T + 1, -1)


@pytest.mark.parametrize("sequence", [0, 4, 6, 100, INT32_MAX])
def test_a_gap_or_a_step_back_is_refused(states: ProducerStates, sequence: int) -> None:
    append(states, data(P, 0, 0, 5))
    refused(states, data(P, sequence, 5, 3), OutOfOrderSequenceError, "producer 7", str(sequence))


def test_the_refusal_tells_what_was_wanted(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 5))
    refused(states, data(P, 9, 5, 3), OutOfOrderSequenceError, "epoch 0", "9 to 11", "5 comes next")


@pytest.mark.parametrize("sequence", [0, 1, 12345, INT32_MAX])
def test_an_unknown_producer_may_begin_anywhere(states: ProducerStates, sequence: int) -> None:
    append(states, data(P, sequence, 0))
    assert states.entries[P].last_sequence == sequence


def test_sequences_wrap_between_batches(states: ProducerStates) -> None:
    append(states, data(P, INT32_MAX - 1, 0, 2))
    refused(states, data(P, 1, 2), OutOfOrderSequenceError, "0 comes next")
    append(states, data(P, 0, 2))


def test_sequences_wrap_inside_a_batch(states: ProducerStates) -> None:
    append(states, data(P, INT32_MAX - 1, 0, 5))
    (batch,) = states.entries[P].batches
    assert (batch.first_sequence, batch.last_sequence) == (INT32_MAX - 1, 2)
    assert states.admit([data(P, INT32_MAX - 1, 9, 5)], CLIENT).duplicate == batch
    append(states, data(P, 3, 5))


def test_a_batch_without_a_producer_is_no_ones(states: ProducerStates) -> None:
    append(states, data(-1, -1, 0, 5))
    assert not states.entries


def test_coordinators_do_not_number_their_batches(states: ProducerStates) -> None:
    append(states, data(P, -1, 0, 2, in_txn=True), origin=COORDINATOR)
    append(states, data(P, -1, 2, 1, in_txn=True), origin=COORDINATOR)
    assert states.entries[P].batches[0] == ProducerBatch(-1, 1, 1, T)
    assert states.entries[P].batches[0].first_sequence == INT32_MAX - 1  # as Kafka computes it


def test_producers_do_not_meet(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 5))
    append(states, data(Q, 77, 5))
    append(states, data(P, 5, 6))
    append(states, data(Q, 78, 7))


# --- several batches in one append ---------------------------------------------------------------


def test_a_later_batch_is_checked_against_the_earlier(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 5))
    append(states, data(P, 5, 5, 2), data(Q, 0, 7), data(-1, -1, 8), data(P, 7, 9))
    assert states.entries[P].last_sequence == 7
    with pytest.raises(OutOfOrderSequenceError):
        states.admit([data(P, 8, 10, 2), data(P, 11, 12)], CLIENT)
    assert states.entries[P].last_sequence == 7


def test_an_unknown_producer_may_begin_anywhere_throughout_its_first_append(
    states: ProducerStates,
) -> None:
    append(states, data(P, 9, 0), data(P, 4, 1), data(P, 6, 2))
    refused(states, data(P, 9, 3, 2), OutOfOrderSequenceError)


def test_what_an_append_changes_is_told_and_not_done(states: ProducerStates) -> None:
    admission = states.admit([data(P, 0, 0, in_txn=True), data(Q, 0, 1)], CLIENT)
    assert not states.entries
    assert not states.ongoing
    assert {entry.producer_id for entry in admission.entries} == {P, Q}
    assert admission.started == ((0, P),)
    states.apply(admission)
    assert set(states.entries) == {P, Q}
    assert states.ongoing == ((0, P),)


def test_nothing_comes_of_nothing(states: ProducerStates) -> None:
    assert states.admit([], CLIENT) == Admission()


# --- duplicates ----------------------------------------------------------------------------------


def six(states: ProducerStates) -> list[BatchHeader]:
    headers = [data(P, 2 * i, 10 * i, 2, timestamp=T + i) for i in range(6)]
    for header in headers:
        append(states, header)
    return headers


def test_the_latest_five_are_known_again(states: ProducerStates) -> None:
    headers = six(states)
    assert len(states.entries[P].batches) == 5
    for i, header in enumerate(headers[1:], 1):
        found = states.admit([data(P, header.base_sequence, 999, 2)], CLIENT)
        assert found == Admission(duplicate=ProducerBatch(2 * i + 1, 10 * i + 1, 1, T + i))
        assert found.duplicate == states.find_duplicate(P, 0, 2 * i, 2 * i + 1)
    assert states.find_duplicate(P, 0, 0, 1) is None
    refused(states, data(P, 0, 999, 2), OutOfOrderSequenceError)


@pytest.mark.parametrize(
    "header",
    [data(P, 10, 999, 1), data(P, 10, 999, 3), data(P, 9, 999, 3), data(P, 8, 999, 4)],
    ids=["shorter", "longer", "overlapping", "two at once"],
)
def test_a_duplicate_has_the_same_first_and_last_sequence(
    states: ProducerStates, header: BatchHeader
) -> None:
    six(states)
    refused(states, header, OutOfOrderSequenceError)


def test_only_clients_repeat_themselves(states: ProducerStates) -> None:
    headers = six(states)
    for origin in (COORDINATOR, REPLICATION):
        assert states.admit([headers[-1]], origin).duplicate is None


def test_another_epoch_or_producer_is_no_duplicate(states: ProducerStates) -> None:
    six(states)
    assert states.find_duplicate(Q, 0, 10, 11) is None
    assert states.find_duplicate(P, 1, 10, 11) is None
    refused(states, data(P, 10, 999, 2, epoch=1), OutOfOrderSequenceError)


def test_an_append_is_a_duplicate_only_as_a_whole(states: ProducerStates) -> None:
    headers = six(states)
    found = states.admit(headers[2:5], CLIENT).duplicate
    assert found == ProducerBatch(last_sequence=9, last_offset=41, offset_delta=21, timestamp=T + 4)
    for rest in (data(P, 12, 999), data(Q, 0, 999), data(-1, -1, 999)):
        with pytest.raises(OutOfOrderSequenceError):
            states.admit([headers[-1], rest], CLIENT)


# --- epochs --------------------------------------------------------------------------------------


def test_a_new_epoch_begins_at_zero_and_forgets_the_batches(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 5))
    refused(
        states, data(P, 5, 5, epoch=1), OutOfOrderSequenceError, "epoch 1", "sequence 5", "was 0"
    )
    append(states, data(P, 0, 5, 3, epoch=1))
    entry = states.entries[P]
    assert (entry.epoch, entry.batches) == (1, (ProducerBatch(2, 7, 2, T),))


def test_an_old_epoch_is_fenced(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, epoch=3))
    for origin in (CLIENT, COORDINATOR):
        refused(
            states, data(P, 0, 1, epoch=2), FencedProducerError, "producer 7", "2", "3",
            origin=origin,
        )  # fmt: skip


def test_a_leader_is_believed(states: ProducerStates) -> None:
    """Replication and recovery take what the log holds, whatever they think of it."""
    append(states, data(P, 0, 0, epoch=3, in_txn=True), origin=REPLICATION)
    append(states, data(P, 50, 1, epoch=3, in_txn=True), origin=REPLICATION)
    append(states, data(P, 9, 2, epoch=2), origin=REPLICATION)
    entry = states.entries[P]
    assert (entry.epoch, entry.last_sequence, entry.txn_first_offset) == (2, 9, 0)
    append(states, end(P, 3, epoch=1), origin=REPLICATION, markers={3: says(COMMIT, 5)})
    append(states, end(P, 4, epoch=1), origin=REPLICATION, markers={4: says(COMMIT, 4)})
    assert states.entries[P].coordinator_epoch == 4
    assert not states.ongoing


# --- transactions --------------------------------------------------------------------------------


def test_the_first_batch_opens_a_transaction(states: ProducerStates) -> None:
    append(states, data(P, 0, 10, 3, in_txn=True))
    append(states, data(P, 3, 13, 3, in_txn=True))
    assert states.entries[P].txn_first_offset == 10
    assert states.ongoing == ((10, P),)


def test_an_open_transaction_takes_no_other_batches(states: ProducerStates) -> None:
    append(states, data(P, 0, 10, in_txn=True))
    refused(states, data(P, 1, 11), TransactionStateError, "producer 7", "offset 10")
    refused(states, data(P, 1, 11), TransactionStateError, origin=COORDINATOR)
    append(states, data(Q, 0, 11))
    finish(states, P, 12, COMMIT)
    append(states, data(P, 1, 13))


def test_a_marker_ends_the_transaction(states: ProducerStates) -> None:
    append(states, data(P, 0, 10, 2, in_txn=True))
    header, markers = end(P, 12, timestamp=T + 9), {12: says(COMMIT, 4)}
    admission, aborted = append(states, header, origin=COORDINATOR, markers=markers)
    assert admission.completed == (CompletedTxn(P, 10, 12, is_aborted=False),)
    assert aborted == []
    entry = states.entries[P]
    assert entry.txn_first_offset is None
    assert (entry.coordinator_epoch, entry.last_timestamp) == (4, T + 9)
    assert entry.batches == (ProducerBatch(1, 11, 1, T),)  # a marker is none of them
    assert not states.ongoing


def test_an_abort_is_indexed(states: ProducerStates) -> None:
    append(states, data(P, 0, 10, 2, in_txn=True))
    append(states, data(-1, -1, 12, 5))
    assert finish(states, P, 17, ABORT) == [AbortedTxn(P, 10, 17, 18)]


def test_the_end_of_an_empty_transaction_completes_nothing(states: ProducerStates) -> None:
    assert finish(states, P, 0, ABORT, epoch=2, coordinator_epoch=3) == []
    entry = states.entries[P]
    assert (entry.epoch, entry.coordinator_epoch, entry.batches) == (2, 3, ())
    assert states.first_unstable_offset(0) is None


def test_a_marker_may_raise_the_epoch(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 2, in_txn=True))
    finish(states, P, 2, COMMIT, epoch=1)
    assert states.entries[P].batches == ()
    refused(states, data(P, 2, 3), FencedProducerError)
    refused(states, data(P, 2, 3, epoch=1), OutOfOrderSequenceError, "0 comes next")
    append(states, data(P, 0, 3, epoch=1))


def test_an_old_marker_is_fenced(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, epoch=2, in_txn=True))
    with pytest.raises(FencedProducerError, match=r"producer 7.* epoch 1.* epoch 2"):
        finish(states, P, 1, ABORT, epoch=1)
    assert states.ongoing == ((0, P),)


def test_a_marker_of_an_old_coordinator_is_fenced(states: ProducerStates) -> None:
    finish(states, P, 0, COMMIT, coordinator_epoch=5)
    append(states, data(P, 0, 1, in_txn=True))
    with pytest.raises(FencedCoordinatorError, match=r"producer 7.* epoch 4.* epoch 5"):
        finish(states, P, 2, COMMIT, coordinator_epoch=4)
    finish(states, P, 2, COMMIT, coordinator_epoch=5)


def strict(states: ProducerStates, epoch: int, *, origin: Origin = COORDINATOR) -> Admission:
    markers = {9: says(COMMIT)}
    return states.admit([end(P, 9, epoch=epoch)], origin, markers, strict_markers=True)


def test_a_strict_marker_leaves_its_transactions_epoch_behind(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, epoch=5, in_txn=True))
    for epoch in (4, 5):
        with pytest.raises(FencedProducerError):
            strict(states, epoch)
    assert strict(states, 5, origin=REPLICATION).completed
    admission = strict(states, 6)
    assert admission.completed
    states.apply(admission)
    states.complete(admission.completed[0])
    assert strict(states, 6).completed == ()  # a retry
    with pytest.raises(FencedProducerError):
        strict(states, 5)


def test_there_is_no_epoch_behind_the_last(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, epoch=32767, in_txn=True))
    assert strict(states, 32767).completed


def test_an_emptied_control_batch_ends_nothing(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    before = states.entries[P]
    states.replay([end(P, 1, epoch=4, count=0), end(Q, 2, count=0)])
    assert states.entries[P] == before
    assert states.ongoing == ((0, P),)
    assert states.entries[Q].is_unknown  # so Kafka has it, too
    append(states, data(Q, 33, 3))


def test_another_kind_of_control_record_is_passed_over(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    states.replay([end(P, 1, epoch=3), end(Q, 2)], {1: says(2, None), 2: says(99, None)})
    assert states.entries[P].epoch == 0
    assert set(states.entries) == {P}


def test_a_control_batch_without_its_record_is_our_own_mistake(states: ProducerStates) -> None:
    with pytest.raises(AssertionError):
        states.admit([end(P, 1)], COORDINATOR)


def test_a_whole_transaction_in_one_append(states: ProducerStates) -> None:
    headers = [
        data(P, 0, 0, in_txn=True),
        end(P, 1),
        data(P, 1, 2, in_txn=True),
        end(P, 3),
        data(P, 2, 4, in_txn=True),
    ]
    markers = {1: says(ABORT), 3: says(COMMIT)}
    admission, aborted = append(states, *headers, origin=REPLICATION, markers=markers)
    assert [(txn.first_offset, txn.last_offset) for txn in admission.completed] == [(0, 1), (2, 3)]
    assert aborted == [AbortedTxn(P, 0, 1, 2)]
    assert states.ongoing == ((4, P),)
    assert states.entries[P].txn_first_offset == 4


# --- the last stable offset ----------------------------------------------------------------------


def test_the_worked_example() -> None:
    """A at 0 and 1, B at 2, A aborts at 3, B commits at 4: kafka-log.md 6.10, as Kafka answered."""
    states, a, b = ProducerStates(), 1, 2
    append(states, data(a, 0, 0, 2, in_txn=True))
    assert states.first_unstable_offset(2) == 0
    append(states, data(b, 0, 2, in_txn=True))
    assert list(states.ongoing) == [(0, a), (2, b)]
    assert states.first_unstable_offset(3) == 0
    assert finish(states, a, 3, ABORT) == [AbortedTxn(a, 0, 3, 2)]
    assert list(states.ongoing) == [(2, b)]
    assert [states.first_unstable_offset(hw) for hw in (0, 3, 4)] == [0, 0, 2]
    assert finish(states, b, 4, COMMIT) == []
    assert [states.first_unstable_offset(hw) for hw in (3, 4, 5)] == [0, 2, None]
    states.on_high_watermark(4)
    assert states.first_unstable_offset(4) == 2
    states.on_high_watermark(5)
    assert states.first_unstable_offset(5) is None


def test_a_decided_transaction_hides_behind_one_that_lasts_longer(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    append(states, data(Q, 0, 1, in_txn=True))
    finish(states, Q, 2, COMMIT)
    finish(states, P, 9, COMMIT)
    for high_watermark, first in [(2, 0), (3, 0), (9, 0), (10, None)]:
        assert states.first_unstable_offset(high_watermark) == first
        states.on_high_watermark(high_watermark)
        assert states.first_unstable_offset(high_watermark) == first


def test_the_index_looks_for_the_next_one_of_another_producer(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    append(states, data(Q, 0, 1, in_txn=True))
    txn = CompletedTxn(Q, 1, 2, is_aborted=True)
    assert states.last_stable_offset_after(txn) == 0
    assert finish(states, Q, 2, ABORT) == [AbortedTxn(Q, 1, 2, 0)]
    assert finish(states, P, 3, ABORT) == [AbortedTxn(P, 0, 3, 4)]


def test_replay_indexes_batch_by_batch(states: ProducerStates) -> None:
    """As recovery does: what opens behind the marker is not yet open when the marker is met."""
    headers = [data(P, 0, 0, in_txn=True), end(P, 1), data(-1, -1, 2), data(Q, 0, 3, in_txn=True)]
    assert states.replay(headers, {1: says(ABORT)}) == [AbortedTxn(P, 0, 1, 2)]


# --- expiry and snapshots ------------------------------------------------------------------------


def test_the_silent_are_forgotten(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, timestamp=T))
    append(states, data(Q, 0, 1, timestamp=T + 1))
    assert states.expire(T + 999, 1000) == 0
    assert states.expire(T + 1000, 1000) == 1
    assert set(states.entries) == {Q}
    append(states, data(P, 55, 2))


def test_an_open_transaction_does_not_expire(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    assert states.expire(T + 10**12, 1000) == 0
    finish(states, P, 1, COMMIT)
    assert states.expire(T + 10**12, 1000) == 1
    assert states.first_unstable_offset(1) == 0  # the reader still waits for the high watermark


def test_a_snapshot_is_where_a_later_life_begins(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, 5))
    append(states, data(P, 5, 5, 5))
    append(states, data(Q, 0, 10, in_txn=True))
    later = ProducerStates()
    later.load(states.snapshot_entries(), 11, now_ms=T + 999, ttl_ms=1000)
    assert (later.map_end_offset, later.snapshot_offset) == (11, 11)
    assert dict(later.entries) == dict(states.entries)
    assert later.ongoing == ((10, Q),)
    assert finish(later, Q, 11, ABORT) == [AbortedTxn(Q, 10, 11, 12)]


def test_loading_forgets_the_expired_and_what_was_before(states: ProducerStates) -> None:
    append(states, data(P, 0, 0))
    append(states, data(Q, 0, 1, in_txn=True))
    entries = states.snapshot_entries()
    later = ProducerStates()
    append(later, data(99, 0, 0, in_txn=True))
    finish(later, 99, 1, COMMIT)
    append(later, data(98, 0, 2, in_txn=True))
    later.load(entries, 2, now_ms=T + 1000, ttl_ms=1000)
    assert set(later.entries) == {Q}
    assert later.ongoing == ((1, Q),)
    assert later.first_unstable_offset(0) == 1


@pytest.mark.parametrize("offset", [0, 10, 11])
def test_a_snapshot_knows_nothing_of_later_offsets(states: ProducerStates, offset: int) -> None:
    append(states, data(P, 0, 5))
    append(states, data(Q, 0, 10, 2, in_txn=True))
    later = ProducerStates()
    append(later, data(1, 0, 0))
    with pytest.raises(CorruptionError, match="snapshot_offset"):
        later.load(states.snapshot_entries(), offset, now_ms=T, ttl_ms=1000)
    assert set(later.entries) == {1}
    later.load(states.snapshot_entries(), 12, now_ms=T, ttl_ms=1000)


def test_clear_forgets_everything(states: ProducerStates) -> None:
    append(states, data(P, 0, 0, in_txn=True))
    append(states, data(Q, 0, 1, in_txn=True))
    finish(states, Q, 2, ABORT)
    states.map_end_offset, states.snapshot_offset = 3, 2
    states.clear()
    assert not states.entries
    assert not states.ongoing
    assert states.first_unstable_offset(0) is None
    assert (states.map_end_offset, states.snapshot_offset) == (0, 0)


def test_snapshots_are_in_kafkas_order_even_after_many_have_gone(states: ProducerStates) -> None:
    for producer_id in (17, 1, *range(100, 111)):
        append(states, data(producer_id, 0, 0, timestamp=T if producer_id >= 100 else T + 1))
    states.expire(T + 1000, 1000)
    assert [entry.producer_id for entry in states.snapshot_entries()] == [1, 17]


def test_entries_cannot_be_changed_from_outside(states: ProducerStates) -> None:
    append(states, data(P, 0, 0))
    with pytest.raises(TypeError):
        states.entries[P] = states.entries[P]  # type: ignore[index]
    with pytest.raises(AttributeError):
        states.entries[P].epoch = 5  # type: ignore[misc]
