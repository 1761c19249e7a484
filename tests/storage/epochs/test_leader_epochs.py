"""Leader epochs: Kafka's own results, a plain model of its rules, and the two columns that must increase."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError, UsageError
from stratalog.storage.epochs.leader_epochs import UNDEFINED_END, EpochEnd, EpochEntry, LeaderEpochs
from stratalog.storage.names import LEADER_EPOCH_CHECKPOINT
from tests.judges.peers.golden import GOLDEN_DIR
from tests.scale import SCALE, sized

GOLDEN = sorted(GOLDEN_DIR.rglob(LEADER_EPOCH_CHECKPOINT))


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*entry) for entry in entries)


def listed(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_golden_checkpoint_comes_back_byte_for_byte(path):
    data = path.read_bytes()
    epochs = LeaderEpochs.decode(data)
    assert epochs.entries
    assert epochs.encode() == data


def test_golden_checkpoints_are_many_and_one_has_many_epochs():
    assert len(GOLDEN) > 40
    folder = GOLDEN_DIR / "v2-leader-epochs" / "Accounts_island-0"
    epochs = LeaderEpochs.decode((folder / LEADER_EPOCH_CHECKPOINT).read_bytes())
    assert epochs.entries == ((0, 0), (4, 50), (6, 80), (8, 140))


def test_example_that_kafkas_own_class_gave():
    epochs = LeaderEpochs()
    assert epochs.assign(2, 10)
    assert epochs.assign(4, 20)
    assert not epochs.assign(4, 25)
    assert listed(epochs) == [(2, 10), (4, 20)]
    assert epochs.assign(7, 20)
    assert listed(epochs) == [(2, 10), (7, 20)]
    assert epochs.assign(9, 40)
    answers = {epoch: epochs.end_offset_for(epoch, 99) for epoch in (-1, 1, 2, 3, 7, 8, 9, 10)}
    assert answers == {
        -1: (-1, -1), 1: (1, 10), 2: (2, 20), 3: (2, 20),
        7: (7, 40), 8: (7, 40), 9: (9, 99), 10: (-1, -1),
    }  # fmt: skip
    assert epochs.truncate_from_start(15)
    assert listed(epochs) == [(2, 15), (7, 20), (9, 40)]
    assert epochs.truncate_from_end(40)
    assert listed(epochs) == [(2, 15), (7, 20)]


def test_lower_start_under_a_higher_epoch_removes_what_it_contradicts():
    epochs = epochs_of((2, 10), (4, 20), (5, 30))
    assert epochs.assign(6, 15)
    assert epochs.entries == ((2, 10), (6, 15))


def test_lower_epoch_behind_the_latest_removes_the_higher_ones():
    epochs = epochs_of((2, 10), (4, 20), (5, 30))
    assert epochs.assign(3, 40)
    assert epochs.entries == ((2, 10), (3, 40))


def test_latest_epoch_that_starts_earlier_moves():
    epochs = epochs_of((2, 10), (4, 20))
    assert epochs.assign(4, 12)
    assert epochs.entries == ((2, 10), (4, 12))


def test_ends_of_an_empty_history_are_unknown():
    epochs = LeaderEpochs()
    assert epochs.latest is None
    assert epochs.earliest is None
    assert epochs.epoch_for_offset(0) is None
    assert epochs.end_offset_for(-1, 5) == epochs.end_offset_for(0, 5) == UNDEFINED_END
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(0)
    assert not epochs.clear()
    assert epochs.encode() == b"0\n0\n"


def test_epoch_of_an_offset_is_the_last_that_started_up_to_it():
    epochs = epochs_of((2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (0, 9, 10, 19, 20, 2**62)] == [
        None, None, 2, 2, 4, 4,
    ]  # fmt: skip


def test_truncation_at_an_entry_keeps_it_at_the_start_and_drops_it_at_the_end():
    epochs = epochs_of((2, 10), (4, 20))
    assert not epochs.truncate_from_start(10)
    assert epochs.truncate_from_start(20)
    assert epochs.entries == ((4, 20),)
    assert not epochs.truncate_from_end(21)
    assert not epochs.truncate_from_end(-1)
    assert epochs.truncate_from_end(20)
    assert not epochs.entries


def test_clear_forgets_all():
    epochs = epochs_of((2, 10))
    assert epochs.clear()
    assert epochs.entries == ()
    assert epochs.assign(2, 10)


def test_a_reader_keeps_the_entries_that_it_took():
    epochs = epochs_of((2, 10))
    taken = epochs.entries
    epochs.assign(3, 20)
    assert taken == ((2, 10),)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**63)])
def test_what_cannot_be_stored_is_refused(epoch, start):
    for epochs in (LeaderEpochs(), epochs_of((5, 5))):
        before = epochs.entries
        with pytest.raises(UsageError):
            epochs.assign(epoch, start)
        assert epochs.entries == before


@pytest.mark.parametrize(
    "data",
    [b"1\n0\n", b"0\n1\n", b"0\n1\n1\n", b"0\n1\n-1 0\n", b"0\n1\n0 -1\n", b"0\n1\n2147483648 0\n",
     b"0\n1\n0 9223372036854775808\n", b"0\n1\n2 12", b"0\n1\n1 2 3\n", b"\0\0\0"],
)  # fmt: skip
def test_wrong_checkpoint_is_an_error(data):
    with pytest.raises(CorruptionError):
        LeaderEpochs.decode(data)


def test_entries_out_of_order_are_settled_as_kafka_settles_them():
    data = b"0\n4\n5 50\n3 60\n4 60\n4 70\n"
    assert LeaderEpochs.decode(data).entries == ((4, 60),)
    assert LeaderEpochs.decode(b"").entries == ()


def test_many_entries_that_contradict_each_other_are_settled_in_one_pass():
    lines = [f"{epoch} {2**62 - epoch}" for epoch in range(50_000)]
    data = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    assert LeaderEpochs.decode(data).entries == ((49_999, 2**62 - 49_999),)


class Model:
    """Kafka's rules over a dict, with no thought of speed."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def assign(self, epoch: int, start: int) -> None:
        latest = max(self.starts, default=None)
        if latest is not None and epoch == latest and start >= self.starts[latest]:
            return
        for other in sorted(self.starts, reverse=True):
            if other < epoch and self.starts[other] < start:
                break
            del self.starts[other]
        self.starts[epoch] = start

    def end_offset_for(self, epoch: int, end: int) -> tuple[int, int]:
        if epoch == -1 or not self.starts:
            return (-1, -1)
        if epoch == max(self.starts):
            return (epoch, end)
        higher = [other for other in self.starts if other > epoch]
        if not higher:
            return (-1, -1)
        lower = [other for other in self.starts if other <= epoch]
        return (max(lower) if lower else epoch, self.starts[min(higher)])

    def epoch_for_offset(self, offset: int) -> int | None:
        return max((e for e, start in self.starts.items() if start <= offset), default=None)

    def truncate_from_end(self, end: int) -> None:
        if end >= 0:
            self.starts = {e: start for e, start in self.starts.items() if start < end}

    def truncate_from_start(self, start: int) -> None:
        gone = [e for e in self.starts if self.starts[e] <= start]
        for epoch in gone:
            del self.starts[epoch]
        if gone:
            self.starts[max(gone)] = start


SMALL = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), SMALL, SMALL),
        st.tuples(st.just("truncate_from_end"), st.integers(-1, 12)),
        st.tuples(st.just("truncate_from_start"), SMALL),
    ),
    max_size=12,
)


@settings(max_examples=sized(100, 300 * SCALE))
@given(STEPS)
def test_any_steps_agree_with_the_model_and_both_columns_increase(steps):
    epochs, model = LeaderEpochs(), Model()
    for name, *numbers in steps:
        before = epochs.entries
        changed = getattr(epochs, name)(*numbers)
        getattr(model, name)(*numbers)
        entries = epochs.entries
        assert changed == (entries != before)
        assert entries == tuple(sorted(model.starts.items()))
        for earlier, later in pairwise(entries):
            assert earlier.epoch < later.epoch
            assert earlier.start_offset < later.start_offset
        for number in range(-1, 14):
            assert epochs.end_offset_for(number, 99) == model.end_offset_for(number, 99)
            assert epochs.epoch_for_offset(number) == model.epoch_for_offset(number)
        assert LeaderEpochs.decode(epochs.encode()).entries == entries


def test_answer_has_names():
    assert epochs_of((2, 10)).end_offset_for(2, 30) == EpochEnd(epoch=2, end_offset=30)
