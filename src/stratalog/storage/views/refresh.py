"""Continue reading in a new view when files of the old one were replaced by another process."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.errors import StorageError
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.views.log_view import LogView

__all__ = ["ViewRefresher"]


@dataclass(slots=True)
class ViewRefresher:
    """``refresh`` makes a new view; None if no other process may change the files."""

    refresh: Callable[[], LogView] | None
    misses: int = 0

    def after(self, error: StorageError, offset: int | None = None) -> LogView:
        """Return a view in which to continue at ``offset``, because a file of the old view is gone:
        compaction has put another in its place.

        Raise the error itself if it says something else, if retention has deleted what was at ``offset``, or
        if the files are gone again and again. ``found`` says that a read succeeded.
        """
        self.misses += 1
        if self.refresh is None or error.errno != errno.ENOENT or self.misses > LISTINGS_MAX:
            raise error
        view = self.refresh()
        if offset is not None and offset < view.log_start:
            raise error
        return view

    def found(self) -> None:
        """Begin to count misses from zero."""
        self.misses = 0
