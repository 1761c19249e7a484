"""A partition of a topic that another process writes, and may delete and create again."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError
from stratalog.manager.read.reading import PartitionView
from stratalog.manager.read.tailing import FollowedFolder

__all__ = ["FollowedTopic"]


class FollowedTopic:
    """Follows a partition as long as its topic is the same one. When it is deleted this counts as closed,
    as a log of this process does, also if there is a new topic of the same name."""

    def __init__(self, folder: FollowedFolder, check_same: Callable[[], None]) -> None:
        """``check_same`` raises UnknownPartitionError if the topic is gone. It is called only when the files
        have changed: it lists the log directories."""
        self._folder = folder
        self._check_same = check_same
        self._is_gone = False
        self._seen: PartitionView | None = None
        self._shown: PartitionView | None = None

    @property
    def is_closed(self) -> bool:
        return self._is_gone or self._folder.is_closed

    def look(self) -> PartitionView:
        if not self._is_gone:
            try:
                self._look()
            except UnknownPartitionError:
                if self._shown is None:
                    raise
                self._is_gone = True
        assert self._shown is not None
        return self._shown

    def _look(self) -> None:
        try:
            seen = self._folder.look()
        except (StorageError, CorruptionError):
            self._check_same()
            raise
        if seen is not self._seen:
            self._check_same()  # after the look: it showed this topic, or an earlier one
            self._seen = seen
            self._shown = seen._replace(again=self._ended_by(seen))

    def _ended_by(self, seen: PartitionView) -> Callable[[], PartitionView] | None:
        """Return the ``again`` of a view, so that a tail ends if the topic is gone."""
        again = seen.again
        if again is None:
            return None
        name = str(seen.topic_partition)

        def look_again() -> PartitionView:
            try:
                return again()
            except UnknownPartitionError as error:
                # A tail that is closed passes over an error of the disk, and ends.
                self._is_gone = True
                raise StorageError(str(error), path=name) from error

        return look_again
