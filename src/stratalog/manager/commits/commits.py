"""The exactly-once commit: pieces that tasks have staged go into the logs of a directory once, or not at all.

One synced line in the journal is the decision. Before it nothing has changed. After it the commit will
happen: if the process dies, the next writer compares the logs with the pieces and appends what is missing.
Our readers see all of a commit or nothing of it. ``docs/adr/0004`` gives the reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from stratalog.clock import Clock
from stratalog.errors import (
    OffsetOrderError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.commits.admit import admit_piece, prepared_name
from stratalog.manager.commits.apply import apply_pieces
from stratalog.manager.commits.plan import PieceFile, ordered_pieces, plan_methods, plan_sweep
from stratalog.manager.commits.replay import Replay
from stratalog.manager.commits.threads import side_by_side
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.directory import LogDirectory
from stratalog.storage.commits.journal import CommitJournal, JournalState, read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.records import (
    CommittedSpan,
    Done,
    Intent,
    NewTopic,
    PartitionIntent,
    PlannedPiece,
)
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.formats.partition_metadata import new_topic_id
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import parse_piece_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = [
    "CommitResult",
    "DirectoryCommits",
    "TopicPlan",
    "discard_pieces",
]

#: Above so many pieces of commits that are not done, their ages are looked at now and then only.
_AGES_AT_ONCE: Final = 64
_AGES_EVERY: Final = 16


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that a commit creates if it does not exist."""

    partitions: int
    configs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit. ``spans`` has the offsets of its records, by partition; None if the commit was
    done so long ago that the journal has dropped them."""

    key: CommitKey
    spans: tuple[CommittedSpan, ...] | None
    #: Whether an earlier call has done it, so that this one wrote nothing.
    was_done_before: bool = False
    #: Whether this call finished a commit of a process that died.
    replayed: bool = False
    #: What was unusual, in sentences for people.
    reports: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(span.records for span in self.spans or ())

    def offsets(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first and the last offset in one partition; None if it got no record."""
        for span in self.spans or ():
            if span.place == (topic, partition):
                return span.first_offset, span.last_offset
        return None


def discard_pieces(
    root: str | os.PathLike[str],
    pieces: Iterable[Piece],
    *,
    file_system: FileSystem | None = None,
) -> None:
    """Remove pieces that will not be committed. Pieces of a commit that is decided stay."""
    files = file_system or OsFileSystem()
    promised = {
        planned.piece.name
        for each in read_journal(files, os.fspath(root)).open
        for partition in each.intent.partitions
        for planned in partition.pieces
    }
    for piece in pieces:
        _ = piece.parsed_name  # raises if the name is not that of a piece
        if piece.name not in promised:
            files.unlink(os.path.join(os.fspath(root), piece.name))


class DirectoryCommits:
    """The commits of one log directory that is open for writing."""

    def __init__(
        self,
        directory: LogDirectory,
        catalogue: Catalogue,
        file_system: FileSystem,
        clock: Clock,
        log_of: Callable[[TopicPartition], PartitionLog],
        gate: AppendGate,
    ) -> None:
        """``gate`` is closed from the time at which a commit looks where the logs end until it is done."""
        self.root = directory.root
        self._directory = directory
        self._catalogue = catalogue
        self._file_system = file_system
        self._clock = clock
        self._log_of = log_of
        self._gate = gate
        self._journal = CommitJournal(file_system, directory.root)
        self._has_begun = False
        #: What replays have reported, for the next result.
        self._reports: list[str] = []
        self._has_replayed = False

    def read(self) -> None:
        """Read the journal, without changing anything. CorruptionError if it is damaged."""
        self._journal.read()

    def settle(self) -> None:
        """Finish the commits that were decided and interrupted, in this process or one that died."""
        if not self._has_begun:
            self._journal.begin()
            self._has_begun = True
        replay = Replay(self.root, self._file_system, self._journal, self._log_of)
        for each in self._journal.state.open:
            with self._gate.closed():
                self._create_topics(each.intent)
                self._reports += replay.finish(each)
            self._has_replayed = True
            for partition in each.intent.partitions:
                self._log_of(partition.place).wake_readers()
            self._tidy()

    @property
    def state(self) -> JournalState:
        """What the journal says now. A value that never changes: each line of the journal replaces it.

        A commit is in it before its first append, and open until everything is applied and the journal says
        that it is done. Readers take it before and after they look, and wait for nothing.
        """
        return self._journal.state

    def open_topics(self) -> set[str]:
        """Return the topics that commits which are not finished write to, or create."""
        intents = [each.intent for each in self.state.open]
        return {
            *(partition.place.topic for intent in intents for partition in intent.partitions),
            *(topic.name for intent in intents for topic in intent.topics),
        }

    def commit(
        self,
        key: CommitKey,
        pieces: Iterable[Piece],
        topics: Mapping[str, TopicPlan] | None = None,
        *,
        threads: int = 1,
    ) -> CommitResult:
        """See :func:`stratalog.manager.commit_pieces.commit_pieces`."""
        self.settle()
        listed = ordered_pieces(key, pieces)
        state = self._journal.state
        if state.is_done(key):
            found = state.done_as(key)
            self._tidy()
            return self._result(key, None if found is None else found.spans, was_done_before=True)
        now_ms = self._clock.now_ms()
        new = self._new_topics(listed, topics or {})
        with self._undecided(listed):
            admitted = self._admit(listed, new, now_ms, threads)
        with self._gate.closed():
            with self._undecided(listed):
                intent = self._plan(key, admitted, new, now_ms)
            spans = self._carry_out(intent, threads)
        self._tidy(threads)
        return self._result(key, spans)

    def _carry_out(self, intent: Intent, threads: int) -> tuple[CommittedSpan, ...]:
        """Decide a commit, and write its records; return where they are."""
        key = intent.key
        if not intent.partitions and not intent.topics:
            self._journal.append(Done(intent.number, key, ()))
            return ()
        self._journal.append(intent)
        try:
            self._create_topics(intent)
            logs = [(self._log_of(each.place), each) for each in intent.partitions]
            side_by_side(self._apply, logs, threads)
            spans = tuple(_plain_span(each) for each in intent.partitions)
            self._journal.append(Done(intent.number, key, spans))
            for log, _ in logs:
                log.wake_readers()
        except StratalogError as error:
            error.add_note(_promised_note(key))
            raise
        return spans

    def _apply(self, planned: tuple[PartitionLog, PartitionIntent]) -> None:
        log, intent = planned
        _check_end(log, intent, intent.start)
        apply_pieces(log, self._file_system, self.root, intent.pieces, intent.start)
        _check_end(log, intent, intent.start + intent.records)

    def _result(
        self,
        key: CommitKey,
        spans: tuple[CommittedSpan, ...] | None,
        *,
        was_done_before: bool = False,
    ) -> CommitResult:
        replayed, reports = self._has_replayed, tuple(self._reports)
        self._has_replayed = False
        self._reports.clear()
        return CommitResult(key, spans, was_done_before, replayed, reports)

    # Before the decision.

    def _admit(
        self,
        pieces: Mapping[TopicPartition, tuple[Piece, ...]],
        new: Mapping[str, NewTopic],
        now_ms: int,
        threads: int,
    ) -> dict[TopicPartition, list[Piece]]:
        """Return the pieces to commit: these, or what their topics want in their place. Every piece is
        checked before the first log is opened."""
        configs = {each: self._config_of(each, new) for each in pieces}
        listed = [piece for each in pieces.values() for piece in each]

        def admit(piece: Piece) -> Piece:
            config = configs[piece.place]
            return admit_piece(self._file_system, self.root, piece, config, now_ms)

        admitted = side_by_side(admit, listed, threads)
        if admitted != listed:
            self._file_system.sync_dir(self.root)
        by_place: dict[TopicPartition, list[Piece]] = {each: [] for each in pieces}
        for piece in admitted:
            by_place[piece.place].append(piece)
        return by_place

    def _plan(
        self,
        key: CommitKey,
        pieces: Mapping[TopicPartition, list[Piece]],
        new: Mapping[str, NewTopic],
        now_ms: int,
    ) -> Intent:
        partitions = tuple(
            self._plan_partition(topic_partition, each, new)
            for topic_partition, each in pieces.items()
        )
        number = self._journal.state.last_number + 1
        return Intent(number, key, now_ms, partitions, tuple(new.values()))

    @contextmanager
    def _undecided(self, pieces: Mapping[TopicPartition, tuple[Piece, ...]]) -> Iterator[None]:
        """Remove what was made of the pieces if there will be no commit."""
        try:
            yield
        except BaseException:
            with suppress(StorageError):
                for listed in pieces.values():
                    for piece in listed:
                        self._file_system.unlink(os.path.join(self.root, prepared_name(piece)))
            raise

    def _plan_partition(
        self, topic_partition: TopicPartition, pieces: list[Piece], new: Mapping[str, NewTopic]
    ) -> PartitionIntent:
        start, is_empty = 0, True
        if topic_partition.topic not in new:
            log = self._log_of(topic_partition)
            start, is_empty = log.log_end, log.segments[-1].size_bytes == 0
        methods = plan_methods(
            [piece.size_bytes for piece in pieces],
            self._config_of(topic_partition, new).effective_segment_bytes,
            is_active_empty=is_empty,
        )
        return PartitionIntent(topic_partition, start, tuple(map(PlannedPiece, pieces, methods)))

    def _new_topics(
        self, pieces: Iterable[TopicPartition], topics: Mapping[str, TopicPlan]
    ) -> dict[str, NewTopic]:
        known = self._catalogue.topics()
        for name, plan in topics.items():
            there = (
                {*known[name].partitions, *self._catalogue.missing(name)} if name in known else ()
            )
            if name in known and len(there) != plan.partitions:
                raise UsageError(
                    f"topic {name!r} has {len(there)} partitions, and was to be created with "
                    f"{plan.partitions}: write the batch again for those that there are"
                )
        new = {}
        for name in sorted(
            {*topics, *(topic_partition.topic for topic_partition in pieces)} - known.keys()
        ):
            if name not in topics:
                raise UnknownPartitionError(
                    f"no topic {name!r} in {self.root}: create it, or say with how many partitions"
                )
            plan = topics[name]
            self._catalogue.check_new(name, plan.partitions)
            config = LogConfig.of(plan.configs)
            new[name] = NewTopic(name, new_topic_id(), plan.partitions, config.overrides())
        for topic_partition in pieces:
            if (
                topic_partition.topic in new
                and topic_partition.partition >= new[topic_partition.topic].partitions
            ):
                raise UnknownPartitionError(
                    f"{topic_partition} does not exist: the topic is to have "
                    f"{new[topic_partition.topic].partitions} partitions"
                )
            if (
                topic_partition.topic not in new
                and self._catalogue.directory(topic_partition) is not self._directory
            ):
                raise UsageError(
                    f"{topic_partition} is in {self._catalogue.directory(topic_partition).root}, and its "
                    f"pieces are in {self.root}: a piece is staged in the directory of its partition"
                )
        return new

    def _config_of(self, topic_partition: TopicPartition, new: Mapping[str, NewTopic]) -> LogConfig:
        if topic_partition.topic in new:
            return LogConfig.of(new[topic_partition.topic].configs)
        return self._catalogue.config(topic_partition.topic)

    # After the decision.

    def _create_topics(self, intent: Intent) -> None:
        for topic in intent.topics:
            if topic.name not in self._catalogue.topics():
                self._catalogue.create(
                    topic.name,
                    topic.partitions,
                    LogConfig.of(topic.configs),
                    topic_id=topic.topic_id,
                    directory=self._directory,
                )

    def _tidy(self, threads: int = 1) -> None:
        """Remove what is left over. This may fail without harm: the commit is done."""
        with suppress(StorageError):
            self._sweep(threads)
            self._journal.compact_if_grown()

    def _sweep(self, threads: int) -> None:
        """Remove the pieces that are not needed any more."""
        state = self._journal.state
        names = [
            entry.name
            for entry in self._file_system.list_dir(self.root)
            if entry.is_file and parse_piece_name(entry.name) is not None
        ]
        now_ms = self._clock.now_ms()
        gone, unknown = plan_sweep([PieceFile(name) for name in names], state, now_ms)
        if unknown and (len(unknown) <= _AGES_AT_ONCE or state.last_number % _AGES_EVERY == 0):
            files = []
            for name in unknown:
                found = self._file_system.stat(os.path.join(self.root, name))
                if found is not None:
                    files.append(PieceFile(name, found.modified_ms))
            gone += plan_sweep(files, state, now_ms)[0]
        paths = [os.path.join(self.root, name) for name in gone]
        side_by_side(self._file_system.unlink, paths, threads)


def _check_end(log: PartitionLog, intent: PartitionIntent, end: int) -> None:
    """Raise OffsetOrderError if a log does not end where the journal says: its offsets are promised."""
    if log.log_end != end:
        raise OffsetOrderError(
            f"{intent.place} ends at offset {log.log_end} and not at {end}, which a commit has planned: "
            "while commits run, append through Logs.append and not through Logs.partition"
        )


def _promised_note(key: CommitKey) -> str:
    """Return a note for the error of a commit that failed after its decision."""
    finished = "the commit is decided: the next writer of the log directory completes it"
    if key.is_fresh:
        return f"{finished}, so do not retry it: a retry would be another commit"
    return f"{finished}, and a retry detects that"


def _plain_span(partition: PartitionIntent) -> CommittedSpan:
    start, records = partition.start, partition.records
    return CommittedSpan(partition.place, start, start + records - 1, records, start)
