"""Learn from the headers of kept batches: their leader epochs, and the transactions that stay open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from stratalog.records.layout import CONTROL_MASK, ROW_WIDTH, Row
from stratalog.rewrite.salvage.chain import Link, heaviest_chain
from stratalog.rewrite.salvage.kept_batches import KeptBatches, Sources, walk_kept
from stratalog.rewrite.salvage.runs import Run
from stratalog.rewrite.salvage.selection import LeftOut, LeftOutReason
from stratalog.storage.epochs.leader_epochs import LeaderEpochs
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.producers.rebuild import ProducerReplay, Replayed
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.producers.trail import ProducerTrail
from stratalog.storage.segment.log_file import Window
from stratalog.types import NO_LEADER_EPOCH

__all__ = [
    "EpochRun",
    "HeaderFacts",
    "HeaderReader",
    "HeaderTrail",
    "KeptHeaders",
    "LocalHeaders",
    "OpenTransaction",
    "find_epoch_outliers",
    "join_trails",
    "read_trail",
]


class EpochRun(NamedTuple):
    """Kept batches of one leader epoch, one after the other. ``last`` is the last of them."""

    epoch: int
    batches: int
    first_offset: int
    last: Run


class OpenTransaction(NamedTuple):
    """A transaction without a marker among what is kept."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What the headers of kept batches say."""

    epochs: tuple[EpochRun, ...]
    open_transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class HeaderTrail:
    """What the headers of some of the batches say, without knowing those before them."""

    epochs: tuple[EpochRun, ...]
    producers: ProducerTrail


class KeptHeaders(Protocol):
    """What finds out what the headers of kept batches say."""

    def surveyed(self) -> HeaderFacts:
        """Return what all headers say that were seen in surveys, in the order of files and positions."""
        ...

    def read(self, kept: Sequence[Run]) -> HeaderFacts:
        """Read the headers of the kept runs, in the order of their offsets."""
        ...


class LocalHeaders:
    """Reads headers in this process. ``seen`` takes those that surveys come across."""

    def __init__(self, file_system: FileSystem, sources: Sources) -> None:
        self._file_system = file_system
        self._sources = sources
        self._states = ProducerStates()
        self._reader = HeaderReader(self._states)
        self.seen = self._reader.seen

    def surveyed(self) -> HeaderFacts:
        return _facts(self._reader.epochs, self._states)

    def read(self, kept: Sequence[Run]) -> HeaderFacts:
        states = ProducerStates()
        reader = HeaderReader(states)
        walk_kept(self._file_system, self._sources, kept, reader.seen)
        return _facts(reader.epochs, states)


def read_trail(file_system: FileSystem, sources: Sources, kept: Sequence[Run]) -> HeaderTrail:
    """Walk the headers of some of the kept runs, those before them unknown."""
    producers = ProducerTrail()
    reader = HeaderReader(producers)
    walk_kept(file_system, sources, kept, reader.seen)
    return HeaderTrail(reader.epochs, producers)


def join_trails(trails: Iterable[HeaderTrail]) -> HeaderFacts:
    """Return what all headers say, from trails that follow each other."""
    epochs: list[EpochRun] = []
    states = ProducerStates()
    for trail in trails:
        for each in trail.epochs:
            _add_epoch(epochs, each)
        trail.producers.replay_to(states)
    return _facts(epochs, states)


def _facts(epochs: Iterable[EpochRun], states: ProducerStates) -> HeaderFacts:
    ongoing = (OpenTransaction(producer_id, first) for first, producer_id in states.ongoing)
    return HeaderFacts(tuple(epochs), tuple(ongoing))


def _add_epoch(epochs: list[EpochRun], new: EpochRun) -> None:
    """Add batches after the last ones. They continue the last run if their epoch is the same."""
    last = epochs[-1] if epochs else None
    if last is not None and last.epoch == new.epoch:
        epochs[-1] = last._replace(batches=last.batches + new.batches, last=new.last)
    else:
        epochs.append(new)


class HeaderReader:
    """Takes in the headers of batches in the order of their offsets."""

    def __init__(self, producers: Replayed) -> None:
        self._epochs: list[EpochRun] = []
        self._replay = ProducerReplay(producers)

    @property
    def epochs(self) -> tuple[EpochRun, ...]:
        return tuple(self._epochs)

    def seen(self, batches: KeptBatches) -> None:
        rows, count = batches.rows, batches.held
        self._replay.seen(rows, count, batches.window)
        epochs = rows[Row.LEADER_EPOCH : count * ROW_WIDTH : ROW_WIDTH].tolist()
        if min(epochs) == max(epochs):  # as nearly always
            self._note(batches, epochs[0], 0, count)
            return
        at = 0
        for number in range(1, count + 1):
            if number == count or epochs[number] != epochs[at]:
                self._note(batches, epochs[at], at, number)
                at = number

    def _note(self, batches: KeptBatches, epoch: int, start: int, end: int) -> None:
        if epoch == NO_LEADER_EPOCH:
            return
        rows = batches.rows
        row = rows[(end - 1) * ROW_WIDTH : end * ROW_WIDTH]
        last = _batch(row, batches.source, batches.window)
        first = rows[start * ROW_WIDTH + Row.BASE_OFFSET]
        _add_epoch(self._epochs, EpochRun(epoch, end - start, first, last))


def _batch(row: memoryview, source: int, window: Window) -> Run:
    start = window.position + row[Row.POSITION]
    control = row[Row.RECORD_COUNT] if row[Row.ATTRIBUTES] & CONTROL_MASK else 0
    return Run(
        source, start, start + row[Row.SIZE], row[Row.BASE_OFFSET], row[Row.LAST_OFFSET] + 1, 1,
        row[Row.RECORD_COUNT] - control, control,
    )  # fmt: skip


def find_epoch_outliers(
    epochs: Sequence[EpochRun], known: LeaderEpochs | None = None
) -> tuple[LeftOut, ...]:
    """Return single batches whose leader epoch contradicts those around them. Epochs never fall along a log,
    and no CRC covers them. If one of two batches must be wrong, the checkpoint (``known``) decides."""
    if all(one.epoch <= other.epoch for one, other in pairwise(epochs)):
        return ()
    links = [
        Link(each.epoch, each.epoch, 2 * each.batches + _is_confirmed(each, known))
        for each in epochs
    ]
    in_order = set(heaviest_chain(links))
    return tuple(
        LeftOut(
            each.last,
            LeftOutReason.LEADER_EPOCH,
            f"the batch says leader epoch {each.epoch}, and the batches around it are of others",
        )
        for number, each in enumerate(epochs)
        if number not in in_order and each.batches == 1
    )


def _is_confirmed(run: EpochRun, known: LeaderEpochs | None) -> bool:
    return known is not None and known.epoch_for_offset(run.first_offset) == run.epoch
