"""One sync for all who wait: the first to ask does it, the others wait for it or for the next.

A sync covers everything that was written before it began. Who comes while one runs waits for the following
one, which the first of them starts; so sixty-four callers cost two syncs, not sixty-four. Each of those who
wait has a lock of its own and is woken once, when its turn has come: a crowd that wakes together to find out
who is served would spend more time on that than on the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.errors import OffsetOutOfRangeError

__all__ = ["GroupCommit"]


class GroupCommit:
    """Knows up to which offset a log is on the disk, and has it synced further when asked."""

    def __init__(self, sync: Callable[[], int], synced_offset: int = 0) -> None:
        """``sync`` brings all that is written to the disk and answers up to which offset that is."""
        self._sync = sync
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, threading.Lock]] = []
        self._runner: threading.Lock | None = None  # the turn of who syncs now
        self._cuts = 0
        self.synced_offset = synced_offset

    def reach(self, offset: int) -> None:
        """Return when everything below ``offset`` is on the disk. Where the sync fails, who began it
        gets the error, and each of the others asks for one of its own: it is the log that refuses to
        sync again. OffsetOutOfRangeError where the log was cut below meanwhile."""
        turn = None
        try:
            while self.synced_offset < offset:
                turn = threading.Lock()
                if not self._take(offset, turn):
                    self._await(turn)
                    continue
                cuts = self._cuts
                reached = self._run(cuts)
                if reached < offset and cuts == self._cuts:
                    raise OffsetOutOfRangeError(offset - 1, 0, reached)  # it was cut away before
        except BaseException:
            # A signal may come between any two steps: also when the turn is ours, and nobody syncs yet.
            self._leave(turn)
            raise

    def _take(self, offset: int, turn: threading.Lock) -> bool:
        """Whether it is our turn to sync. If not, ``turn`` opens when it is worth looking again."""
        with self._lock:
            if self._runner is None:
                self._runner = turn
                return True
            if self.synced_offset < offset:
                turn.acquire()
                self._waiting.append((offset, turn))
            return False

    def _await(self, turn: threading.Lock) -> None:
        try:
            turn.acquire()
        except BaseException:
            self._leave(turn)
            raise

    def _leave(self, turn: threading.Lock | None) -> None:
        """Interrupted: the turn, if it was ours, goes to another."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each[1] is not turn]
            if self._runner is turn:
                self._runner = None
            self._wake()

    def _run(self, cuts: int) -> int:
        reached = -1
        try:
            reached = self._sync()
        finally:
            with self._lock:
                if cuts == self._cuts:  # otherwise part of what was synced is not there any more
                    self.synced_offset = max(self.synced_offset, reached)
                self._runner = None
                self._wake()
        return reached

    def _wake(self) -> None:
        """Those who have what they wait for, and one of the others: the next sync is his."""
        left = []
        for offset, turn in self._waiting:
            if offset <= self.synced_offset:
                turn.release()
            else:
                left.append((offset, turn))
        if left and self._runner is None:
            left.pop(0)[1].release()
        self._waiting = left

    def lower(self, offset: int) -> None:
        """The log was cut: nothing behind ``offset`` is there any more."""
        with self._lock:
            self._cuts += 1
            self.synced_offset = min(self.synced_offset, offset)

    def raise_to(self, offset: int) -> None:
        """Everything below ``offset`` was synced by another way."""
        with self._lock:
            self.synced_offset = max(self.synced_offset, offset)
            self._wake()
