"""Plan a commit before it is decided: which piece goes where, in which order, by which method.

Pure functions of values; ``commits`` reads the directory, calls them and writes down what they return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.records import CommitMethod
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.names import PieceName, PieceStage, parse_piece_name
from stratalog.types import TopicPartition

__all__ = ["PieceFile", "check_groups", "ordered_pieces", "plan_methods", "plan_sweep"]

#: If the active segment is empty, a piece of this size is adopted.
_ADOPTED_BYTES_MIN: Final = 1 << 20
#: Pieces of a commit for which nothing was staged for so long will not be committed.
_ABANDONED_MS: Final = 86_400_000


def ordered_pieces(
    key: CommitKey, pieces: Iterable[Piece]
) -> dict[TopicPartition, tuple[Piece, ...]]:
    """Return the pieces by partition, in the order of their tasks. UsageError if one was not staged for this
    commit, or if there are two attempts of a task: its records would be in the log twice."""
    found: dict[TopicPartition, list[tuple[PieceName, Piece]]] = {}
    attempts: dict[int, int] = {}
    names: set[str] = set()
    for piece in pieces:
        name = piece.parsed_name
        if (name.owner, name.version) != (key.owner_digest, key.version):
            raise UsageError(f"{piece.name} was not staged for the commit {key}")
        if name.stage is not PieceStage.STAGED:
            raise UsageError(f"{piece.name} is not a piece that a task has staged")
        if attempts.setdefault(name.task, name.attempt) != name.attempt:
            raise UsageError(
                f"task {name.task} of the commit {key} is there with attempts "
                f"{attempts[name.task]} and {name.attempt}: commit one of them"
            )
        if piece.name in names:
            raise UsageError(f"{piece.name} is there twice")
        names.add(piece.name)
        found.setdefault(piece.topic_partition, []).append((name, piece))
    return {
        topic_partition: tuple(piece for _, piece in sorted(listed, key=lambda each: each[0]))
        for topic_partition, listed in sorted(found.items())
    }


def check_groups(
    key: CommitKey, partitions: Iterable[PartitionGroups]
) -> tuple[PartitionGroups, ...]:
    """Return the partitions whose segments are to be replaced, in order. UsageError if one is named twice,
    or if a segment was not staged for this commit."""
    found: dict[TopicPartition, PartitionGroups] = {}
    for each in partitions:
        if found.setdefault(each.topic_partition, each) is not each:
            raise UsageError(f"{each.topic_partition} is there twice")
        for segment in (segment for group in each.groups for segment in group.new):
            name = segment.parsed_name
            if (name.owner, name.version) != (key.owner_digest, key.version):
                raise UsageError(f"{segment.name} was not staged for the commit {key}")
    return tuple(found[each] for each in sorted(found) if found[each].groups)


def plan_methods(
    sizes: Sequence[int], segment_bytes: int, *, is_active_empty: bool
) -> list[CommitMethod]:
    """Return how each of a partition's pieces gets into the log. A piece that fills half a segment becomes a
    segment, and so does a first one of some size if the active segment is empty. The others are appended, so
    that small commits do not make small segments."""
    methods = []
    for number, size in enumerate(sizes):
        is_first = number == 0 and is_active_empty and size >= _ADOPTED_BYTES_MIN
        is_large = 2 * size >= segment_bytes or is_first
        methods.append(
            CommitMethod.ADOPT if is_large and size <= segment_bytes else CommitMethod.APPEND
        )
    return methods


class PieceFile(NamedTuple):
    """A piece in a root. ``modified_ms`` is None if it was not read."""

    name: str
    modified_ms: int | None = None


def plan_sweep(
    files: Collection[PieceFile], state: JournalState, now_ms: int
) -> tuple[list[str], list[str]]:
    """Return the names of the pieces to remove, and of those whose age must be known to decide.

    Pieces of an open commit stay. Pieces of a version that is done go. The others may still be committed,
    until nothing was staged for the same commit for a day.
    """
    named = _staged(name for each in state.open for name in each.intent.piece_names())
    done = {CommitKey(owner, 0).owner_digest: version for owner, version in state.highest.items()}
    done |= {d.key.owner_digest: d.key.version for d in state.done.values() if d.key.is_fresh}
    gone: list[str] = []
    others: dict[tuple[str, int], list[PieceFile]] = {}
    for file in files:
        name = parse_piece_name(file.name)
        if name is None or name._replace(stage=PieceStage.STAGED) in named:
            continue
        if name.version <= done.get(name.owner, -1):
            gone.append(file.name)
        else:
            others.setdefault((name.owner, name.version), []).append(file)
    unknown: list[str] = []
    for listed in others.values():
        times = [each.modified_ms for each in listed if each.modified_ms is not None]
        if len(times) < len(listed):
            unknown += [each.name for each in listed]
        elif max(times) < now_ms - _ABANDONED_MS:
            gone += [each.name for each in listed]
    return gone, unknown


def _staged(names: Iterable[str]) -> set[PieceName]:
    parsed = (parse_piece_name(name) for name in names)
    return {each._replace(stage=PieceStage.STAGED) for each in parsed if each is not None}
