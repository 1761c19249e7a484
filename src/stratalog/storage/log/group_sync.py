"""One sync for all callers that wait: the first does it, the others wait for it or for the next.

A sync covers everything that was written before it began. Callers that come while one runs wait for the
following one, which the first of them starts; so sixty-four callers cost two syncs, not sixty-four. Each
waiting caller has a lock of its own and is woken once, when its turn has come. If all woke together to find
out which of them are served, that would take longer than the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.errors import OffsetOutOfRangeError

__all__ = ["GroupCommit"]


class GroupCommit:
    """The offset up to which a log is on the disk, and the syncs that move it."""

    def __init__(self, sync: Callable[[], int], synced_offset: int = 0) -> None:
        """``sync`` syncs everything that is written and returns the offset up to which that is."""
        self._sync = sync
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, threading.Lock]] = []
        self._runner: threading.Lock | None = None  # the turn of the caller that syncs now
        self._cuts = 0
        self.synced_offset = synced_offset

    def reach(self, offset: int) -> None:
        """Return when everything below ``offset`` is on the disk. If the sync fails, the caller that began it
        gets the error, and each of the others asks for a sync of its own: it is the log that refuses to sync
        again. Raise OffsetOutOfRangeError if the log was truncated below ``offset`` meanwhile."""
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
                    raise OffsetOutOfRangeError(offset - 1, 0, reached)  # truncated before
        except BaseException:
            # A signal may come between any two steps, also when the turn is ours and the sync has not begun.
            self._leave(turn)
            raise

    def _take(self, offset: int, turn: threading.Lock) -> bool:
        """Return whether it is our turn to sync. If not, ``turn`` opens when it is worth looking again."""
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
        """After an interrupt: give the turn, if it was ours, to another caller."""
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
                if cuts == self._cuts:  # otherwise part of what was synced was truncated
                    self.synced_offset = max(self.synced_offset, reached)
                self._runner = None
                self._wake()
        return reached

    def _wake(self) -> None:
        """Wake the callers that have what they wait for, and one of the others, which syncs next."""
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
        """Note that the log was truncated at ``offset``."""
        with self._lock:
            self._cuts += 1
            self.synced_offset = min(self.synced_offset, offset)

    def raise_to(self, offset: int) -> None:
        """Note that everything below ``offset`` was synced in another way."""
        with self._lock:
            self.synced_offset = max(self.synced_offset, offset)
            self._wake()
