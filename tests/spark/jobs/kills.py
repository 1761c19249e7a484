"""Kill a process before one of its calls that change the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from stratalog.storage.files.filesystem import OsFileSystem, OsWritableFile

CALLS = {
    OsFileSystem: ("open_writable", "make_dir", "rename", "link", "unlink", "sync_dir"),
    OsWritableFile: ("write_at", "truncate", "sync"),
}


@contextmanager
def counting(note: Callable[[], None]) -> Iterator[None]:
    """Call a function before every call that changes the disk."""
    with ExitStack() as patched:
        for kind, names in CALLS.items():
            for name in names:
                noted = _noted(note, getattr(kind, name))
                patched.enter_context(mock.patch.object(kind, name, noted))
        yield


def _noted(note: Callable[[], None], real: Any) -> Any:
    def call(*given: Any, **names: Any) -> Any:
        note()
        return real(*given, **names)

    return call


def calls_of(work: Callable[[], None]) -> int:
    """How many calls change the disk."""
    found = 0

    def note() -> None:
        nonlocal found
        found += 1

    with counting(note):
        work()
    return found


def killed_at(work: Callable[[], None], call: int) -> None:
    """Work in a process that is killed before its ``call``-th call."""
    child = os.fork()
    if child == 0:
        left = call

        def note() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with counting(note):
                work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"call {call} was not reached"
