"""Ctrl-C came between taking the turn to sync and the sync: nobody synced from then on, and whoever asked
waited for ever."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from stratalog.storage.log import group_sync as group_commit
from stratalog.storage.log.group_sync import GroupCommit


def interrupt_at(step: int, call: Any) -> bool:
    """Run it, with an interrupt at one of the steps of the module; whether there are so many. Python serves
    signals where a function begins and behind calls: not, as lines would be, between a ``with`` that is left
    and the release of its lock."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != group_commit.__file__:
            return None
        left -= event in ("call", "return") or frame.f_code.co_name == "reach"
        if left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def reached_by_another(commit: GroupCommit, offset: int) -> bool:
    other = threading.Thread(target=commit.reach, args=(offset,), daemon=True)
    other.start()
    other.join(10)
    return not other.is_alive()


def test_turn_to_sync_goes_to_another_wherever_the_interrupt_comes() -> None:
    step = 1
    while True:
        commit = GroupCommit(lambda: 5)
        if not interrupt_at(step, lambda commit=commit: commit.reach(3)):
            break
        assert reached_by_another(commit, 5), f"an interrupt at step {step}"
        step += 1
    assert step > 10


def test_who_waits_leaves_its_turn_to_another_wherever_the_interrupt_comes() -> None:
    """A sync runs; we wait for the next, are interrupted, and one who came after us must be served."""
    step = 1
    while interrupted_while_another_syncs(step):
        step += 1
    assert step > 9


def interrupted_while_another_syncs(step: int) -> bool:
    begun, go = threading.Semaphore(0), threading.Semaphore(0)

    def sync() -> int:
        begun.release()
        assert go.acquire(timeout=30)
        return 1 if commit.synced_offset == 0 else 9

    commit = GroupCommit(sync)
    first = threading.Thread(target=commit.reach, args=(1,), daemon=True)
    first.start()
    begun.acquire()
    # Who waits is woken by the first sync, and then has to sync itself.
    waker = threading.Timer(0.02, go.release, (9,))
    waker.start()
    was_interrupted = interrupt_at(step, lambda: commit.reach(5))
    last = threading.Thread(target=commit.reach, args=(9,), daemon=True)
    last.start()
    for thread in (first, last):
        thread.join(10)
        assert not thread.is_alive(), f"an interrupt at step {step}"
    waker.join()
    return was_interrupted
