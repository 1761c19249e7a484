"""The gate between appends and commits: who waits for whom, and who waits for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stratalog.manager.append_gate import AppendGate


def begun(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def gate() -> AppendGate:
    return AppendGate()


def test_appends_share_the_gate(gate):
    both = threading.Barrier(2, timeout=10)

    def append() -> None:
        with gate:
            both.wait()

    other = begun(append)
    append()
    other.join(10)
    assert not other.is_alive()


def test_a_commit_waits_for_the_appends_within_and_those_that_come_later_wait_for_it(gate):
    said: list[str] = []
    within, may_leave = threading.Event(), threading.Event()

    def first() -> None:
        with gate:
            within.set()
            may_leave.wait(10)
            said.append("first append")

    def commit() -> None:
        with gate.closed():
            said.append("commit")

    def second() -> None:
        with gate:
            said.append("second append")

    threads = [begun(first)]
    assert within.wait(10)
    threads.append(begun(commit))
    while not gate.is_closed:
        pass
    threads.append(begun(second))
    may_leave.set()
    for thread in threads:
        thread.join(10)
    assert said == ["first append", "commit", "second append"]


def test_the_thread_that_commits_may_append(gate):
    with gate.closed(), gate, gate:
        assert gate.is_closed
    assert not gate.is_closed


def test_an_append_within_an_append_does_not_wait_for_a_commit_that_waits_for_it(gate):
    committed = threading.Event()

    def commit() -> None:
        with gate.closed():
            committed.set()

    with gate:
        thread = begun(commit)
        while not gate.is_closed:
            pass
        with gate:
            assert not committed.is_set()
        assert not committed.is_set()
    assert committed.wait(10)
    thread.join(10)


def test_an_error_opens_the_gate(gate):
    with pytest.raises(KeyError), gate.closed():
        raise KeyError
    with pytest.raises(KeyError), gate:
        raise KeyError
    with gate.closed():
        pass
