"""One sync for all who wait: the first to ask does it, the others wait for it or for the next.

A sync covers everything that was written before it began. Who comes while one runs waits for the following
one, which the first of them starts; so sixty-four callers cost two syncs, not sixty-four.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["GroupCommit"]


class GroupCommit:
    """Knows up to which offset a log is on the disk, and has it synced further when asked."""

    def __init__(self, sync: Callable[[], int], synced_offset: int = 0) -> None:
        """``sync`` brings all that is written to the disk and answers up to which offset that is."""
        self._sync = sync
        self._changed = threading.Condition(threading.Lock())
        self._is_running = False
        self._failure: BaseException | None = None
        self.synced_offset = synced_offset

    def reach(self, offset: int) -> None:
        """Return when everything below ``offset`` is on the disk. Where the sync fails, everyone who
        waits for it gets the error."""
        if self.synced_offset >= offset:
            return
        while True:
            with self._changed:
                while self._is_running and self.synced_offset < offset and not self._failure:
                    self._changed.wait()
                if self._failure is not None:
                    raise self._failure
                if self.synced_offset >= offset:
                    return
                self._is_running = True
            self._run()

    def _run(self) -> None:
        try:
            reached = self._sync()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._is_running = False
                self._changed.notify_all()
            raise
        with self._changed:
            self.synced_offset = max(self.synced_offset, reached)
            self._is_running = False
            self._changed.notify_all()

    def lower(self, offset: int) -> None:
        """The log was cut: nothing behind ``offset`` is there any more."""
        with self._changed:
            self.synced_offset = min(self.synced_offset, offset)

    def raise_to(self, offset: int) -> None:
        """Everything below ``offset`` was synced by another way."""
        with self._changed:
            self.synced_offset = max(self.synced_offset, offset)
            self._changed.notify_all()
