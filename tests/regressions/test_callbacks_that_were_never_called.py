"""``when_synced`` took a callback while the log was being closed, and nobody was left to call it; one
callback that raised ended the thread that calls all of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.errors import StratalogError, UsageError
from stratalog.storage.log import flushing
from stratalog.storage.log.state import LogState
from stratalog.storage.log.sync_queue import SyncQueue
from tests.storage.logs import batch, open_log


def test_callback_that_comes_while_the_log_is_closed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    end = log.append(batch(b"a")).next_offset
    inside, go = threading.Event(), threading.Event()
    finish = flushing.finish

    def slow(state: LogState) -> None:
        inside.set()
        go.wait(30)
        finish(state)

    monkeypatch.setattr(flushing, "finish", slow)
    closing = threading.Thread(target=log.close)
    closing.start()
    inside.wait(30)
    called: list[StratalogError | None] = []
    with pytest.raises(UsageError, match="closed"):
        log.when_synced(end, called.append)
    go.set()
    closing.join()
    with pytest.raises(UsageError, match="closed"):
        log.when_synced(end, called.append)
    assert called == []


@pytest.mark.parametrize("error", [RuntimeError("of one caller"), SystemExit(3)])
def test_callback_that_raises_does_not_keep_others_from_being_called(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))
    queue = SyncQueue(lambda _: None)
    got = threading.Semaphore(0)

    def bad(_: object) -> None:
        raise error

    for _ in range(3):
        queue.put(1, bad)
        queue.put(1, lambda _: got.release())
        assert got.acquire(timeout=30)
    queue.close()
    assert told == [error] * 3


def test_sync_that_ends_in_a_way_nobody_knows_is_told_to_who_waits() -> None:
    def reach(_: int) -> None:
        raise MemoryError

    queue = SyncQueue(reach)
    answers: list[StratalogError | None] = []
    for _ in range(2):
        queue.put(1, answers.append)
    queue.close()
    assert ["MemoryError" in str(answer) for answer in answers] == [True, True]


def test_callback_of_what_is_on_the_disk_is_not_told_of_what_was_cut_away(tmp_path: Path) -> None:
    """One of a round failed, and all were told so."""
    log = open_log(tmp_path)
    first = log.append(batch(b"a"), sync=True).next_offset
    answers: dict[int, StratalogError | None] = {}
    done = threading.Semaphore(0)

    def answer(number: int, failure: StratalogError | None) -> None:
        answers[number] = failure
        done.release()

    inside, go = threading.Event(), threading.Event()

    def reach(offset: int) -> None:
        inside.set()
        go.wait(30)
        log._state.reach(offset)

    queue = SyncQueue(reach)
    queue.put(first, lambda failure: answer(0, failure))
    assert inside.wait(30)
    queue.put(first, lambda failure: answer(1, failure))  # these two are of one round
    queue.put(first + 9, lambda failure: answer(2, failure))
    go.set()
    for _ in range(3):
        assert done.acquire(timeout=30)
    queue.close()
    assert [answers[number] for number in (0, 1)] == [None, None]
    assert isinstance(answers[2], StratalogError)
    log.close()
