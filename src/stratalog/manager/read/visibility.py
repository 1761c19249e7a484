"""What readers of partitions see while a commit is in progress: all of it, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stratalog.errors import CorruptionError
from stratalog.manager.read.reading import PartitionView
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.commits.visibility import (
    CommitWatch,
    cut_view,
    hidden_between,
    repeat_look,
)
from stratalog.storage.files.filesystem import FileSystem
from stratalog.types import TopicPartition

__all__ = ["WatchedJournals", "look_past_commits", "without_hidden"]


def without_hidden(
    views: Iterable[PartitionView], hidden: Mapping[TopicPartition, int]
) -> list[PartitionView]:
    """Return the views without what must be hidden. Damage in the hidden part does not matter yet."""
    shown = []
    for each in views:
        end = hidden.get(each.topic_partition)
        if end is None or end > each.view.log_end:
            shown.append(each)
        else:
            shown.append(each._replace(view=cut_view(each.view, end), damage=None))
    return shown


def look_past_commits(
    states: Callable[[], list[JournalState]], look: Callable[[], list[PartitionView]], path: str
) -> list[PartitionView]:
    """Look at partitions; return their views without commits that were not done before the look. Of a
    commit into several partitions that is all, or nothing.

    ``states`` returns what the journals of the directories say now; ``path`` is for the error if commits come
    faster than the partitions can be looked at.
    """

    def look_once() -> list[PartitionView] | None:
        before = states()
        views = look()
        for earlier, later in zip(before, states(), strict=True):
            if earlier is later and not earlier.open:
                continue
            hidden = hidden_between(earlier, later)
            if hidden is None:
                return None
            views = without_hidden(views, hidden)
        return views

    return repeat_look(look_once, path)


class WatchedJournals:
    """The journals of directories that another process may be writing to."""

    def __init__(self, file_system: FileSystem, roots: Iterable[str]) -> None:
        self._watches = [CommitWatch(file_system, root) for root in roots]
        #: Journals that could not be read, by path: parts of commits may be shown.
        self.damage: dict[str, CorruptionError] = {}

    def stamp(self) -> object:
        """Return another value whenever a commit may have begun or ended."""
        return tuple(watch.stamp() for watch in self._watches)

    def states(self) -> list[JournalState]:
        """Return what the journals say now. A damaged one counts as empty."""
        return [self._state(watch) for watch in self._watches]

    def _state(self, watch: CommitWatch) -> JournalState:
        try:
            state = watch.state()
        except CorruptionError as error:
            self.damage[watch.path] = error
            return JournalState()
        self.damage.pop(watch.path, None)
        return state
