"""What readers of open logs see while a commit is under way: all of it, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from stratalog.errors import CorruptionError
from stratalog.manager.read.reading import PartitionView
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.commits.visibility import (
    CommitWatch,
    cut_view,
    hidden_between,
    too_many_commits,
)
from stratalog.storage.files.filesystem import FileSystem
from stratalog.types import TopicPartition

__all__ = ["Visibility", "without_hidden"]

T = TypeVar("T")

_TRIES: Final = 16


def without_hidden(
    views: Iterable[PartitionView], hidden: Mapping[TopicPartition, int]
) -> list[PartitionView]:
    """The views without what must not be shown. What is damaged there does not matter yet."""
    shown = []
    for each in views:
        end = hidden.get(each.place)
        if end is None or end > each.view.log_end:
            shown.append(each)
        else:
            shown.append(each._replace(view=cut_view(each.view, end), damage=None))
    return shown


class Visibility:
    """The journals of directories that another process may be writing to."""

    def __init__(self, file_system: FileSystem, roots: Iterable[str]) -> None:
        self._watches = [CommitWatch(file_system, root) for root in roots]
        #: Journals that could not be read: parts of commits may be shown.
        self.damage: dict[str, CorruptionError] = {}

    def stamp(self) -> object:
        """Another value whenever something else may be visible."""
        return tuple(watch.stamp() for watch in self._watches)

    def look(self, look: Callable[[], list[PartitionView]]) -> list[PartitionView]:
        """What is seen of partitions at one moment, as far as it may be shown."""
        for _ in range(_TRIES):
            before = self._states()
            views = look()
            after = self._states()
            hidden = [hidden_between(a, b) for a, b in zip(before, after, strict=True)]
            for each in hidden:
                if each is None:
                    break
                views = without_hidden(views, each)
            else:
                return views
        raise too_many_commits(self._watches[0])

    def _states(self) -> list[JournalState]:
        states = []
        for watch in self._watches:
            try:
                states.append(watch.state())
                self.damage.pop(watch.path, None)
            except CorruptionError as error:
                self.damage[watch.path] = error
                states.append(JournalState())
        return states
