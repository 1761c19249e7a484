"""A machine that can lose its power, and lets a test look on before each change of its disk."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from threading import RLock
from typing import NamedTuple

from stratalog.clock import Clock

__all__ = ["Change", "ChangeKind", "Machine", "PowerCut", "Watcher"]


class PowerCut(BaseException):
    """The machine is off. No ``except Exception`` may go on from here.

    ``torn_bytes`` of the write that was under way are done before it.
    """

    def __init__(self, detail: str, *, torn_bytes: int = 0) -> None:
        super().__init__(detail)
        self.torn_bytes = torn_bytes


class ChangeKind(StrEnum):
    """The calls that change a disk, or what is durable of it."""

    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    CREATE = "create"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    MAKE_DIR = "make_dir"
    REMOVE_DIR = "remove_dir"
    SYNC_DIR = "sync_dir"


class Change(NamedTuple):
    """A change that is about to be made: the how-many-th, which, and where."""

    number: int
    kind: ChangeKind
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


#: Called before each change, with the disk as it is then. A PowerCut from it turns the machine off.
Watcher = Callable[[Change], None]


class Machine:
    """What an open file must know of the machine that it is open on.

    ``changes`` counts what changed the disk, or made something durable: a call that fails, or has nothing to
    do, is not counted.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.guard = RLock()
        self.changes = 0
        self.watcher: Watcher | None = None
        self._is_off = False

    def begin(self, kind: ChangeKind, path: str) -> None:
        """A change is about to be made: the last moment to look, or to stop it."""
        self.changes += 1
        if self.watcher is not None:
            try:
                self.watcher(Change(self.changes, kind, path))
            except PowerCut:
                self._is_off = True
                raise

    def check_power(self) -> None:
        """Every call on a machine that is off raises PowerCut: whoever makes it is dead."""
        if self._is_off:
            raise PowerCut("the power was cut: this machine is off")
