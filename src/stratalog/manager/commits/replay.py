"""Finish a commit that was decided: find what of it is in the logs, and append the rest.

All that is known is on the disk: the journal's line, the pieces, and logs to which other processes may have
written since. A replay can be interrupted at any point and done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stratalog.errors import CorruptionError, UnknownPartitionError
from stratalog.manager.commits.apply import append_rest
from stratalog.manager.commits.compare import NOTHING, Reached, compare_log
from stratalog.storage.commits.journal import CommitJournal, OpenCommit
from stratalog.storage.commits.piece_reader import check_piece, open_piece
from stratalog.storage.commits.records import (
    CommittedSpan,
    Done,
    Intent,
    PartitionIntent,
    PlannedPiece,
    Revised,
    Revision,
)
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = ["Replay"]


class Replay:
    """Finishes the commits of one log directory."""

    def __init__(
        self,
        root: str,
        file_system: FileSystem,
        journal: CommitJournal,
        log_of: Callable[[TopicPartition], PartitionLog],
    ) -> None:
        self._root = root
        self._file_system = file_system
        self._journal = journal
        self._log_of = log_of

    def finish(self, commit: OpenCommit) -> list[str]:
        """Append what is missing, write that the commit is done, and return a report in sentences.
        CorruptionError, which names the journal, if a piece is missing or damaged."""
        try:
            return self._finish(commit)
        except CorruptionError as error:
            if not error.reason.startswith("piece"):
                raise
            raise self._stuck(commit, error) from None

    def _finish(self, commit: OpenCommit) -> list[str]:
        intent = commit.intent
        rests = [self._rest(each, commit) for each in intent.partitions]
        for each in rests:
            self._check_rest(each)
        revisions = tuple(each.revision for each in rests if each.revision is not None)
        if revisions:
            self._journal.append(Revised(intent.number, revisions))
            commit = OpenCommit(intent, (*commit.revisions, *revisions))
        for each in rests:
            append_rest(
                each.log, self._file_system, self._root, each.pieces, each.reached, each.start
            )
        hidden = commit.visible_ends()
        spans = tuple(
            _replayed_span(each, commit, hidden[each.intent.topic_partition]) for each in rests
        )
        self._journal.append(Done(intent.number, intent.key, spans))
        return _report(intent, rests)

    def _rest(self, partition: PartitionIntent, commit: OpenCommit) -> _Rest:
        """Return what of a partition's pieces its log does not hold yet, and where it goes."""
        try:
            log = self._log_of(partition.topic_partition)
        except UnknownPartitionError as error:
            raise CorruptionError(
                "commit_replay",
                f"the commit {commit.intent.key} is promised to {partition.topic_partition}, which is "
                f"not here: {error}",
                path=self._journal.path,
                advice="open this directory together with the one that has it, or put it back",
            ) from None
        log.sync()  # what is compared is what will be there
        last = commit.last_revision(partition.topic_partition)
        begun = NOTHING if last is None else Reached(last.piece, last.batch)
        start = partition.start if last is None else last.start
        reached = compare_log(log, self._file_system, self._root, partition.pieces, start, begun)
        revision, next_offset = None, start + reached.records
        is_whole = reached.piece == len(partition.pieces)
        if not is_whole and log.log_end != next_offset:
            next_offset = log.log_end
            revision = Revision(
                partition.topic_partition, reached.piece, reached.batch, next_offset
            )
        return _Rest(
            partition, log, reached, revision, next_offset, next_offset if is_whole else None
        )

    def _check_rest(self, rest: _Rest) -> None:
        """Raise CorruptionError if a piece is damaged: before anything is appended."""
        for planned in rest.pieces[rest.reached.piece :]:
            file = open_piece(self._file_system, self._root, planned.piece)
            try:
                check_piece(file, planned.piece)
            except CorruptionError as error:
                if error.reason.startswith("piece"):
                    raise
                raise CorruptionError(
                    "piece_damaged", error.detail, position=error.position, path=error.path
                ) from None
            finally:
                file.close()

    def _stuck(self, commit: OpenCommit, error: CorruptionError) -> CorruptionError:
        return CorruptionError(
            "commit_replay",
            f"the commit {commit.intent.key} is promised and cannot be finished: {error}",
            path=self._journal.path,
            advice="put the piece back; or move the journal away to give the commit up: what is in the "
            "logs of it stays, and a batch that is written again is not known to be there",
        )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left to do for one partition: from offset ``start`` on. ``end`` is the end of the commit if
    nothing is left."""

    intent: PartitionIntent
    log: PartitionLog
    reached: Reached
    revision: Revision | None
    start: int
    end: int | None

    @property
    def pieces(self) -> tuple[PlannedPiece, ...]:
        return self.intent.pieces


def _replayed_span(rest: _Rest, commit: OpenCommit, hidden_from: int) -> CommittedSpan:
    """Return the offsets of the records, also if they lie in several runs with other records between them."""
    partition = rest.intent
    first, begun = partition.start, (0, 0)
    for each in commit.revisions:
        if each.topic_partition == partition.topic_partition and begun == (0, 0):
            if (each.piece, each.batch) != (0, 0):
                break
            first = each.start
    end = rest.log.log_end if rest.end is None else rest.end
    return CommittedSpan(partition.topic_partition, first, end - 1, partition.records, hidden_from)


def _report(intent: Intent, rests: Iterable[_Rest]) -> list[str]:
    said = [f"the commit {intent.key} was interrupted, and is completed now"]
    said += [
        f"{each.intent.topic_partition}: others have written since the commit {intent.key} was begun; what "
        f"they wrote stays, and the rest follows from offset {each.revision.start} on"
        for each in rests
        if each.revision is not None
    ]
    return said
