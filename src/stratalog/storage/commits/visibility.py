"""How far readers may see while a commit is under way: all of it, in every partition, or nothing of it.

A reader looks at several partitions one after the other, and a commit may begin and end in between. So the
journal is read before and after: whatever was not done at the first reading is not shown, even where it is
done at the second. That is always possible to tell, unless so many commits came in between that the journal
has forgotten details of them: then the reader looks again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from stratalog.errors import StorageError
from stratalog.storage.commits.journal import JournalState, read_journal
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import STRATALOG_COMMITS
from stratalog.storage.views.log_view import LogView, SegmentList
from stratalog.types import TopicPartition

__all__ = [
    "CommitWatch",
    "cut_view",
    "hidden_between",
    "look_between",
    "too_many_commits",
    "visible_ends",
]

T = TypeVar("T")

_TRIES: Final = 16


class CommitWatch:
    """The journal of one log directory, for who asks again and again: it is read when it has changed."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._root = root
        self.path = os.path.join(root, STRATALOG_COMMITS)
        self._stamp: object = None
        self._state = JournalState()

    def stamp(self) -> object:
        """Another value whenever the journal may say something else; one call to the system."""
        return self._file_system.stat(self.path)

    def state(self) -> JournalState:
        """What the journal says now. CorruptionError where it is damaged."""
        stamp = self.stamp()
        if stamp is None:
            self._stamp, self._state = None, JournalState()
        elif stamp != self._stamp:
            self._state = read_journal(self._file_system, self._root)
            # What was written since the stamp was taken is seen by the next who asks.
            self._stamp = stamp
        return self._state


def hidden_between(before: JournalState, after: JournalState) -> dict[TopicPartition, int] | None:
    """The offset from which on a partition must not be shown, for each where that is so, to who looked
    between the two readings. None where it cannot be told any more."""
    ends: dict[TopicPartition, int] = {}

    def note(found: Mapping[TopicPartition, int]) -> None:
        for place, end in found.items():
            ends[place] = min(end, ends.get(place, end))

    still_open = {each.intent.number: each for each in after.open}
    for each in before.open:
        note(each.visible_ends())
    wanted = {each.intent.number for each in before.open}
    wanted.update(range(before.last_number + 1, after.last_number + 1))
    for number in wanted:
        if number in still_open:
            note(still_open[number].visible_ends())
        elif number in after.done:
            note({span.place: span.visible_from for span in after.done[number].spans})
        else:
            return None
    return ends


def look_between(watch: CommitWatch, look: Callable[[], T]) -> tuple[T, dict[TopicPartition, int]]:
    """What ``look`` finds, and the offsets from which on that must not be shown."""
    for _ in range(_TRIES):
        before = watch.state()
        found = look()
        hidden = hidden_between(before, watch.state())
        if hidden is not None:
            return found, hidden
    raise too_many_commits(watch)


def too_many_commits(watch: CommitWatch) -> StorageError:
    return StorageError(
        "commits come faster than the log directory can be looked at: try again", path=watch.path
    )


def visible_ends(root: str, file_system: FileSystem) -> dict[TopicPartition, int]:
    """Where readers must stop now, of the partitions that a commit is under way to."""
    ends: dict[TopicPartition, int] = {}
    for each in read_journal(file_system, root).open:
        for place, end in each.visible_ends().items():
            ends[place] = min(end, ends.get(place, end))
    return ends


def cut_view(view: LogView, end: int) -> LogView:
    """The view as if the log ended at ``end``, or in front of the batch that holds it."""
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
