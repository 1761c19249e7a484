"""How far readers may see while a commit is in progress: all of it in every partition, or nothing of it.

A reader looks at several partitions one after the other, and a commit may begin and end in between. So the
journal is read before and after: a commit that was not done at the first reading is not shown, even if it is
done at the second. This can be decided unless so many commits came in between that the journal has dropped
their details: then the reader looks again.

The states that are compared are immutable values. Readers of another process's directory read them from the
journal's file; readers of open logs take them from the journal object, which replaces its state after each
line that is on the disk. Neither waits for a commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import STRATALOG_COMMITS
from stratalog.types import TopicPartition

# A directory without commits is listed without loading any of this.
if TYPE_CHECKING:
    from stratalog.storage.commits.journal import JournalState, OpenCommit
    from stratalog.storage.views.log_view import LogView

__all__ = [
    "CommitWatch",
    "JournalReadings",
    "cut_view",
    "hidden_between",
    "open_ends",
    "repeat_look",
]

T = TypeVar("T")

_TRIES: Final = 16


class CommitWatch:
    """The journal of one log directory, for repeated looks: it is read when it has changed."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._root = root
        self.path = os.path.join(root, STRATALOG_COMMITS)
        self._stamp: object = None
        self._state: JournalState | None = None

    def stamp(self) -> object:
        """Return another value whenever the journal may have changed, with one system call."""
        return self._file_system.stat(self.path)

    def state(self) -> JournalState:
        """Return what the journal says now. CorruptionError if it is damaged."""
        from stratalog.storage.commits.journal import JournalState, read_journal

        stamp = self.stamp()
        if stamp is None:
            self._state = JournalState()
        elif self._state is None or stamp != self._stamp:
            self._state = read_journal(self._file_system, self._root)
        # What was written after the stamp was taken is seen by the next call.
        self._stamp = stamp
        return self._state


def open_ends(commits: Iterable[OpenCommit]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition that may belong to one of these open commits."""
    ends: dict[TopicPartition, int] = {}
    for each in commits:
        _lower(ends, each.visible_ends())
    return ends


def _lower(ends: dict[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
    for topic_partition, end in found.items():
        ends[topic_partition] = min(end, ends.get(topic_partition, end))


def hidden_between(before: JournalState, after: JournalState) -> dict[TopicPartition, int] | None:
    """Return the offset from which on each partition must be hidden from a reader that looked between two
    readings of the journal; partitions that are not listed are shown whole. None if it cannot be decided."""
    ends = open_ends(before.open)
    if before is after:
        return ends
    still_open = {each.intent.number: each for each in after.open}
    wanted = {each.intent.number for each in before.open}
    wanted.update(range(before.last_number + 1, after.last_number + 1))
    for number in wanted:
        if number in still_open:
            _lower(ends, still_open[number].visible_ends())
        elif number in after.done:
            _lower(
                ends, {span.topic_partition: span.visible_from for span in after.done[number].spans}
            )
        else:
            return None
    return ends


class JournalReadings:
    """The journals of some log directories, read before and after one look at their partitions.

    ``read`` returns the state of a root's journal, or None to say that there is no journal: if one has
    appeared by the second reading, the reader looks again.
    """

    def __init__(self, read: Callable[[str], JournalState | None]) -> None:
        self._read = read
        self._before: dict[str, JournalState | None] = {}

    def before(self, root: str) -> JournalState | None:
        """Return the first reading of a root's journal: the reading is made by the first call, which must
        come before its partitions are looked at."""
        if root not in self._before:
            self._before[root] = self._read(root)
        return self._before[root]

    def hidden(self) -> dict[str, dict[TopicPartition, int]] | None:
        """Read the journals again; return the hidden ends by root, for roots that have a journal. None: look
        again."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for root, before in self._before.items():
            after = self._read(root)
            if before is None and after is None:
                continue
            hidden = None if before is None or after is None else hidden_between(before, after)
            if hidden is None:
                return None
            found[root] = hidden
        return found


def repeat_look(look: Callable[[], T | None], path: str) -> T:
    """Look until it can be decided what is visible, and return what was found.

    After 16 looks raise StorageError: more than 64 commits were done during each of them.
    """
    for _ in range(_TRIES):
        found = look()
        if found is not None:
            return found
    raise StorageError(
        "commits come faster than the log directory can be looked at: try again", path=path
    )


def cut_view(view: LogView, end: int) -> LogView:
    """Return the view as if the log ended at ``end``, or before the batch that holds it."""
    from stratalog.storage.views.log_view import SegmentList

    if end >= view.log_end:
        return view
    found = view.find(end)
    if found is None:
        return view
    number, place = found
    segments = list(view.segments.segments[: number + 1])
    position = place.position
    if position == 0 and number > 0:
        segments.pop()
        position = segments[-1].size_bytes
    log_end = max(min(end, place.base_offset), view.log_start)
    return view._replace(
        segments=SegmentList(segments),
        log_end=log_end,
        end_position=position,
        high_watermark=min(view.high_watermark, log_end),
        last_stable_offset=min(view.last_stable_offset, log_end),
    )
