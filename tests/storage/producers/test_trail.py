"""Trails, replayed one after the other, leave the states that the batches themselves leave."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator

import pytest

from stratalog.records.control import ControlRecord, ControlType
from stratalog.records.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.snapshot import encode_snapshot
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.producers.trail import ProducerTrail
from tests.scale import fresh, sized

Marked = tuple[BatchHeader, dict[int, ControlRecord]]


def history(rng: random.Random, count: int) -> Iterator[Marked]:
    """Batches of some producers: plain, idempotent, in transactions that end or do not, in several epochs."""
    producers = range(-1, rng.randrange(1, 12))
    epochs = dict.fromkeys(producers, 0)
    for number in range(count):
        producer = rng.choice(producers)
        offset = 3 * number
        epochs[producer] += rng.random() < 0.02
        is_control = producer >= 0 and rng.random() < 0.2
        is_transactional = is_control or rng.random() < 0.5
        attributes = is_transactional * TRANSACTIONAL_MASK | is_control * CONTROL_MASK
        header = BatchHeader(
            61 * number, 61, 2, attributes, offset, offset + 2, 5 * number, 5 * number + 2, 3,
            producer, epochs[producer], -1 if is_control else offset,
        )  # fmt: skip
        kind = rng.choice((ControlType.ABORT, ControlType.COMMIT))
        yield header, {offset: ControlRecord(0, kind, 1, b"")} if is_control else {}


@pytest.mark.scaled
def test_trails_leave_what_batches_leave() -> None:
    for seed in range(sized(60, 1000)):
        rng = random.Random(fresh(seed))
        batches = list(history(rng, rng.randrange(1, 400)))
        states, followed = ProducerStates(), ProducerStates()
        aborted, found = [], []
        while batches:
            count = rng.randrange(1, len(batches) + 1)
            part, batches = batches[:count], batches[count:]
            trail = ProducerTrail()
            for header, markers in part:
                aborted += states.replay((header,), markers)
                assert trail.replay((header,), markers) == []
            sent = pickle.loads(pickle.dumps(trail))
            assert len(sent) <= len(trail)
            found += sent.replay_to(followed)
            assert encode_snapshot(followed.snapshot_entries()) == encode_snapshot(
                states.snapshot_entries()
            )
            assert list(followed.ongoing) == list(states.ongoing)
        assert found == aborted


def test_a_trail_of_one_producer_stays_small() -> None:
    trail = ProducerTrail()
    for number in range(10_000):
        header = BatchHeader(
            0, 61, 2, 0, number, number, producer_id=7, producer_epoch=0, base_sequence=number
        )
        trail.replay((header,), {})
    assert len(pickle.loads(pickle.dumps(trail))) == 6
    assert len(pickle.dumps(trail)) < 1000


def test_an_empty_trail_changes_nothing() -> None:
    states = ProducerStates()
    assert pickle.loads(pickle.dumps(ProducerTrail())).replay_to(states) == []
    assert encode_snapshot(states.snapshot_entries()) == encode_snapshot(
        ProducerStates().snapshot_entries()
    )
