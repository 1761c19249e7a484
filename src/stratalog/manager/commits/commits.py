"""The exactly-once commit: pieces that tasks have staged go into the logs of a directory once, or not at all.

One synced line in the journal is the decision. Before it nothing has changed. After it the commit will
happen: if the process dies, the next writer compares the logs with the pieces and appends what is missing.
Our readers see all of a commit or nothing of it. ``docs/adr/0004`` gives the reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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
from stratalog.manager.commits.plan import (
    PieceFile,
    check_groups,
    ordered_pieces,
    plan_methods,
    plan_sweep,
)
from stratalog.manager.commits.replace import FoundGroup, GroupSwaps
from stratalog.manager.commits.replay import Replay
from stratalog.manager.commits.threads import side_by_side
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.directory import LogDirectory
from stratalog.storage.commits.journal import (
    CommitJournal,
    JournalState,
    OpenCommit,
    read_journal,
)
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.records import (
    CommittedSpan,
    Done,
    Intent,
    NewTopic,
    PartitionIntent,
    PlannedPiece,
    ReplacedPartition,
)
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.formats.partition_metadata import new_topic_id
from stratalog.storage.log_config import LogConfig, check_together
from stratalog.storage.names import parse_piece_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = [
    "CommitResult",
    "DirectoryCommits",
    "ReplaceResult",
    "TopicPlan",
    "discard_pieces",
    "discard_staged",
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
            if span.topic_partition == (topic, partition):
                return span.first_offset, span.last_offset
        return None


@dataclass(frozen=True, slots=True)
class ReplaceResult:
    """The outcome of a replacement, by partition; None if it was done so long ago that the journal has
    dropped it."""

    key: CommitKey
    replaced: tuple[ReplacedPartition, ...] | None
    #: Whether an earlier call has done it, so that this one changed nothing.
    was_done_before: bool = False
    #: Whether this call finished a commit of a process that died.
    replayed: bool = False
    #: What was unusual, in sentences for people.
    reports: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every group of segments was replaced, as far as it is known."""
        return all(each.done == each.planned for each in self.replaced or ())


def discard_pieces(
    root: str | os.PathLike[str],
    pieces: Iterable[Piece],
    *,
    file_system: FileSystem | None = None,
) -> None:
    """Remove pieces that will not be committed. Pieces of a commit that is decided stay."""
    files = file_system or OsFileSystem()
    promised = {
        name
        for each in read_journal(files, os.fspath(root)).open
        for name in each.intent.piece_names()
    }
    for piece in pieces:
        _ = piece.parsed_name  # raises if the name is not that of a piece
        if piece.name not in promised:
            files.unlink(os.path.join(os.fspath(root), piece.name))


def discard_staged(
    root: str | os.PathLike[str], key: CommitKey, *, file_system: FileSystem | None = None
) -> None:
    """Remove everything that was staged for a commit which will not happen. If it is decided, nothing is
    removed."""
    files = file_system or OsFileSystem()
    path = os.fspath(root)
    if any(each.intent.key == key for each in read_journal(files, path).open):
        return
    for entry in files.list_dir(path):
        name = parse_piece_name(entry.name)
        if name is not None and (name.owner, name.version) == (key.owner_digest, key.version):
            files.unlink(os.path.join(path, entry.name))


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
        *,
        on_replaced: Callable[[PartitionLog], None],
        store_cleaned: Callable[[TopicPartition, PartitionLog, int], None],
    ) -> None:
        """``gate`` is closed from the time at which a commit looks where the logs end until it is done. For
        the others see ``GroupSwaps``."""
        self.root = directory.root
        self._directory = directory
        self._catalogue = catalogue
        self._file_system = file_system
        self._clock = clock
        self._log_of = log_of
        self._gate = gate
        self._journal = CommitJournal(file_system, directory.root)
        self._swaps = GroupSwaps(
            directory.root,
            file_system,
            log_of,
            on_replaced=on_replaced,
            store_cleaned=store_cleaned,
        )
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
        for each in self._journal.state.open:
            if each.intent.replaced:
                self._finish_replacement(each.intent)
            else:
                self._finish_appends(each)
            self._has_replayed = True
            self._tidy()

    def _finish_appends(self, commit: OpenCommit) -> None:
        replay = Replay(self.root, self._file_system, self._journal, self._log_of)
        with self._gate.closed():
            self._create_topics(commit.intent)
            self._reports += replay.finish(commit)
        for partition in commit.intent.partitions:
            self._log_of(partition.topic_partition).wake_readers()

    def _finish_replacement(self, intent: Intent) -> None:
        self._reports.append(f"the commit {intent.key} was interrupted, and is completed now")
        replaced = self._swaps.replay(intent, self._reports)
        self._journal.append(Done(intent.number, intent.key, (), replaced))

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
            *(each.topic for intent in intents for each in intent.topic_partitions),
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

    def replace(
        self, key: CommitKey, partitions: Iterable[PartitionGroups], *, threads: int = 1
    ) -> ReplaceResult:
        """See :func:`stratalog.manager.commit_segments.commit_segments`."""
        self.settle()
        listed = check_groups(key, partitions)
        state = self._journal.state
        if state.is_done(key):
            done = state.done_as(key)
            self._tidy()
            return self._replace_result(
                key, None if done is None else done.replaced, was_done_before=True
            )
        for each in listed:
            self._check_here(each.topic_partition)
        with ExitStack() as held:
            for each in listed:
                held.enter_context(self._log_of(each.topic_partition).rewriting())
            found = self._swaps.check(listed, threads)
            number, now_ms = state.last_number + 1, self._clock.now_ms()
            intent = Intent(number, key, now_ms, (), replaced=listed)
            replaced = self._carry_out_replacement(intent, found)
        self._tidy(threads)
        return self._replace_result(key, replaced)

    def _carry_out_replacement(
        self, intent: Intent, found: dict[TopicPartition, list[FoundGroup]]
    ) -> tuple[ReplacedPartition, ...]:
        """Decide a replacement, and swap its segments in; return how many groups of each partition."""
        if not intent.replaced:
            self._journal.append(Done(intent.number, intent.key, ()))
            return ()
        self._journal.append(intent)
        try:
            replaced = self._swaps.carry_out(intent, found, self._reports)
            self._journal.append(Done(intent.number, intent.key, (), replaced))
        except StratalogError as error:
            error.add_note(_promised_note(intent.key))
            raise
        return replaced

    def _replace_result(
        self,
        key: CommitKey,
        replaced: tuple[ReplacedPartition, ...] | None,
        *,
        was_done_before: bool = False,
    ) -> ReplaceResult:
        replayed, reports = self._take_reports()
        return ReplaceResult(key, replaced, was_done_before, replayed, reports)

    def _carry_out(self, intent: Intent, threads: int) -> tuple[CommittedSpan, ...]:
        """Decide a commit, and write its records; return where they are."""
        key = intent.key
        if not intent.partitions and not intent.topics:
            self._journal.append(Done(intent.number, key, ()))
            return ()
        self._journal.append(intent)
        try:
            self._create_topics(intent)
            logs = [(self._log_of(each.topic_partition), each) for each in intent.partitions]
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
        replayed, reports = self._take_reports()
        return CommitResult(key, spans, was_done_before, replayed, reports)

    def _take_reports(self) -> tuple[bool, tuple[str, ...]]:
        replayed, reports = self._has_replayed, tuple(self._reports)
        self._has_replayed = False
        self._reports.clear()
        return replayed, reports

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
            config = configs[piece.topic_partition]
            return admit_piece(self._file_system, self.root, piece, config, now_ms)

        admitted = side_by_side(admit, listed, threads)
        if admitted != listed:
            self._file_system.sync_dir(self.root)
        by_partition: dict[TopicPartition, list[Piece]] = {each: [] for each in pieces}
        for piece in admitted:
            by_partition[piece.topic_partition].append(piece)
        return by_partition

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
            check_together(self._catalogue.in_effect(config))
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
            if topic_partition.topic not in new:
                self._check_here(topic_partition)
        return new

    def _check_here(self, topic_partition: TopicPartition) -> None:
        directory = self._catalogue.directory(topic_partition)
        if directory is not self._directory:
            raise UsageError(
                f"{topic_partition} is in {directory.root}, and its pieces are in {self.root}: a piece is "
                "staged in the directory of its partition"
            )

    def _config_of(self, topic_partition: TopicPartition, new: Mapping[str, NewTopic]) -> LogConfig:
        if topic_partition.topic in new:
            own = LogConfig.of(new[topic_partition.topic].configs)
            return self._catalogue.in_effect(own)
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
            f"{intent.topic_partition} ends at offset {log.log_end} and not at {end}, which a commit has "
            "planned: while commits run, append through Logs.append and not through Logs.partition"
        )


def _promised_note(key: CommitKey) -> str:
    """Return a note for the error of a commit that failed after its decision."""
    finished = "the commit is decided: the next writer of the log directory completes it"
    if key.is_fresh:
        return f"{finished}, so do not retry it: a retry would be another commit"
    return f"{finished}, and a retry detects that"


def _plain_span(partition: PartitionIntent) -> CommittedSpan:
    start, records = partition.start, partition.records
    return CommittedSpan(partition.topic_partition, start, start + records - 1, records, start)
