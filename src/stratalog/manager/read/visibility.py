"""What readers of partitions see while a commit is in progress: all of it, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stratalog.errors import CorruptionError
from stratalog.manager.read.reading import PartitionView
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.commits.visibility import (
    CommitWatch,
    JournalReadings,
    cut_view,
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
    roots: Sequence[str],
    state_of: Callable[[str], JournalState],
    look: Callable[[], list[PartitionView]],
) -> list[PartitionView]:
    """Look at partitions; return their views without commits that were not done before the look. Of a
    commit into several partitions that is all, or nothing."""

    def look_once() -> list[PartitionView] | None:
        readings = JournalReadings(state_of)
        for root in roots:
            readings.before(root)
        views = look()
        hidden = readings.hidden()
        if hidden is None:
            return None
        for ends in hidden.values():
            views = without_hidden(views, ends) if ends else views
        return views

    return repeat_look(look_once, roots[0])


class WatchedJournals:
    """The journals of directories that another process may be writing to."""

    def __init__(self, file_system: FileSystem, roots: Iterable[str]) -> None:
        self._watches = {root: CommitWatch(file_system, root) for root in roots}
        #: Journals that could not be read, by path: parts of commits may be shown.
        self.damage: dict[str, CorruptionError] = {}

    def stamp(self) -> object:
        """Return another value whenever a commit may have begun or ended."""
        return tuple(watch.stamp() for watch in self._watches.values())

    def state_of(self, root: str) -> JournalState:
        """Return what a directory's journal says now. A damaged one counts as empty."""
        watch = self._watches[root]
        try:
            state = watch.state()
        except CorruptionError as error:
            self.damage[watch.path] = error
            return JournalState()
        self.damage.pop(watch.path, None)
        return state
