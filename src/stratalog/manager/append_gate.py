"""Keep appends and commits apart: appends share the gate, and a commit has it to itself.

A commit writes into its journal at which offsets its records will be, and then writes the records. An append
in between would take those offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

__all__ = ["AppendGate"]


class AppendGate:
    """A lock with a shared and an exclusive side. ``with gate:`` is the shared side, for one append to one
    log; ``with gate.closed():`` is the exclusive side.

    A thread that is within either side may enter the shared one again: callbacks append, too. Appends that
    come while a commit waits for the gate wait for the commit, so that it gets its turn.
    """

    def __init__(self) -> None:
        # Taken directly where nothing waits: a condition's own methods are slower.
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        #: How deep each thread is within the shared side.
        self._depths: dict[int, int] = {}
        #: The thread that has the exclusive side, or waits until the others have left.
        self._owner: int | None = None

    def __enter__(self) -> None:
        thread = get_ident()
        with self._lock:
            depth = self._depths.get(thread, 0)
            if depth == 0 and self._owner is not None and self._owner != thread:
                self._moved.wait_for(self._is_free)
            self._depths[thread] = depth + 1

    def __exit__(self, *_: object) -> None:
        thread = get_ident()
        with self._lock:
            depth = self._depths.pop(thread) - 1
            if depth:
                self._depths[thread] = depth
            elif self._owner is not None:
                self._moved.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait until every append has returned, and keep others out. Not to be nested."""
        thread = get_ident()
        with self._lock:
            self._moved.wait_for(self._is_free)
            self._owner = thread
        try:
            with self._lock:
                self._moved.wait_for(lambda: not self._depths.keys() - {thread})
            yield
        finally:
            with self._lock:
                self._owner = None
                self._moved.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether a commit has the gate, or waits for it."""
        return self._owner is not None

    def _is_free(self) -> bool:
        return self._owner is None
