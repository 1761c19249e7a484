"""Whether this process is the one that opened something, or one that was forked off since."""

from __future__ import annotations

import os

from stratalog.errors import UsageError

__all__ = ["check_forks", "fork_count"]

#: How many forks lie between this process and the first one.
_forks = 0


def fork_count() -> int:
    """Is another number in a forked process: what was opened at this one is then its parent's."""
    return _forks


def check_forks(forks: int, what: str) -> None:
    """UsageError where ``what`` was opened before this process was forked off."""
    if forks != _forks:
        raise UsageError(
            f"{what} was opened by the process that this one was forked from: open it here, to be "
            "read only while that one has it open"
        )


def _after_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)
