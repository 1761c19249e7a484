"""Looking at a partition once more, for who reads files that another replaces meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.errors import StorageError
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.views.log_view import LogView

__all__ = ["Relook"]


@dataclass(slots=True)
class Relook:
    """``again`` makes a new view; None where nobody else may touch the files."""

    again: Callable[[], LogView] | None
    misses: int = 0

    def after(self, error: StorageError, offset: int | None = None) -> LogView:
        """A view in which to go on from ``offset``, when a file of the one before is gone: compaction has
        put another in its place. The error itself where that is not so, where retention has deleted
        what stood there, and where it does not end; ``found`` says that it went well."""
        self.misses += 1
        if self.again is None or error.errno != errno.ENOENT or self.misses > LISTINGS_MAX:
            raise error
        view = self.again()
        if offset is not None and offset < view.log_start:
            raise error
        return view

    def found(self) -> None:
        self.misses = 0
