"""Commits next to appends: each record is there once, also if an append comes between plan and records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stratalog.errors import OffsetOrderError
from stratalog.manager.logs import Logs, open_logs
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.log.adoption import StagedFile
from stratalog.testing import Call, MemoryFileSystem
from tests.manager.meddling import Meddling
from tests.manager.staging import Committing, batches

ROOT = "/data"
KEY = CommitKey("query", 1)


@pytest.fixture
def disk() -> Meddling:
    return Meddling(MemoryFileSystem(folders=[ROOT]))


@pytest.fixture
def here(disk: Meddling) -> Committing:
    return Committing(disk, ROOT, disk.memory.clock)


def opened(disk: Meddling) -> Logs:
    return open_logs(ROOT, file_system=disk, clock=disk.memory.clock)


def append_past_the_gate(logs: Logs, clock: Any) -> None:
    logs.partition("t", 0).append(batches(["foreign"], now_ms=clock.now_ms()), sync=True)


def begun(run: Callable[[], object]) -> threading.Thread:
    """Start a thread, and give it the time to do what it may do now."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(0.2)
    return thread


def test_an_append_while_the_decision_is_written_waits_for_the_commit(disk, here):
    with opened(disk) as logs:
        logs.create("t", 2)
        pieces = here.stage(KEY, {("t", 0): ["a"], ("t", 1): ["b"]})
        threads: list[threading.Thread] = []
        disk.meddle = lambda: threads.append(begun(lambda: logs.append("t", ["c"], partition=0)))
        disk.at = (Call.SYNC, ".journal")
        assert logs.commit(KEY, pieces).offsets("t", 0) == (0, 0)
        threads[0].join(10)
        assert [record.value for record in logs.read("t").records()] == [b"a", b"c", b"b"]
    assert here.seen() == {("t", 0): ["a", "c"], ("t", 1): ["b"]}


def test_the_marker_of_a_transaction_waits_for_the_commit(disk, here):
    with opened(disk) as logs:
        logs.create("t")
        pieces = here.stage(KEY, {("t", 0): ["a"]})
        transaction = logs.transaction()
        transaction.append("t", ["c"])
        threads: list[threading.Thread] = []
        disk.meddle = lambda: threads.append(begun(transaction.commit))
        disk.at = (Call.SYNC, ".journal")
        assert logs.commit(KEY, pieces).offsets("t", 0) == (1, 1)
        threads[0].join(10)
        assert [record.value for record in logs.read("t").records()] == [b"c", b"a"]
        assert logs.latest("t") == 3


def test_a_transaction_that_has_appended_does_not_keep_its_thread_from_committing(disk, here):
    with opened(disk) as logs:
        logs.create("t")
        with logs.transaction() as transaction:
            transaction.append("t", ["c"])
            logs.commit(KEY, here.stage(KEY, {("t", 0): ["a"]}))
            transaction.append("t", ["d"])
        assert [record.value for record in logs.read("t").records()] == [b"c", b"a", b"d"]


def test_records_that_are_made_while_they_are_appended_may_commit(disk, here):
    """The gate is not held while the caller's own code runs."""
    with opened(disk) as logs:
        logs.create("t")

        def rows() -> Any:
            yield "c"
            logs.commit(KEY, here.stage(KEY, {("t", 0): ["a"]}))
            yield "d"

        logs.append("t", rows())
        assert sorted(record.value or b"" for record in logs.read("t").records()) == [
            b"a",
            b"c",
            b"d",
        ]


def test_closing_waits_for_the_commit(disk, here):
    logs = opened(disk)
    logs.create("t")
    logs.transaction().append("t", ["c"])
    pieces = here.stage(KEY, {("t", 0): ["a"]})
    threads: list[threading.Thread] = []
    disk.meddle = lambda: threads.append(begun(logs.close))
    disk.at = (Call.SYNC, ".journal")
    logs.commit(KEY, pieces)
    threads[0].join(10)
    assert not threads[0].is_alive()
    assert not read_journal(disk, ROOT).open
    with opened(disk) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"a"]


@pytest.mark.parametrize("again", ["commit", "open"])
def test_a_log_that_has_grown_gets_nothing_and_the_replay_appends_once(disk, here, again):
    logs = opened(disk)
    logs.create("t", 2)
    pieces = here.stage(KEY, {("t", 0): ["a"], ("t", 1): ["b"]})
    disk.meddle = lambda: append_past_the_gate(logs, here.clock)
    disk.at = (Call.SYNC, ".journal")
    with pytest.raises(OffsetOrderError, match="t-0 ends at offset 1 and not at 0") as caught:
        logs.commit(KEY, pieces)
    assert any("the commit is decided" in note for note in caught.value.__notes__)
    assert logs.partition("t", 0).log_end == 1
    logs.append("t", ["later"], partition=0)
    if again == "commit":
        result = logs.commit(KEY, pieces)
        assert (result.was_done_before, result.replayed) == (True, True)
        assert result.offsets("t", 0) == (2, 2)
    logs.close()
    with opened(disk):
        pass
    assert here.seen() == {("t", 0): ["foreign", "later", "a"], ("t", 1): ["b"]}


def test_an_append_between_two_pieces_leaves_each_record_once(disk, here):
    with opened(disk) as logs:
        logs.create("t")
        values = [[f"{task} {number:02d}" for number in range(4)] for task in range(2)]
        pieces = [
            piece
            for task in range(2)
            for piece in here.stage(KEY, {("t", 0): values[task]}, task=task)
        ]

        def meddle() -> None:
            if logs.partition("t").log_end == len(values[0]):
                append_past_the_gate(logs, here.clock)
            else:  # the pieces are being checked
                disk.at = (Call.OPEN_READABLE, pieces[-1].name)

        disk.meddle = meddle
        disk.at = (Call.OPEN_READABLE, pieces[-1].name)
        with pytest.raises(OffsetOrderError, match="the log ends at 5"):
            logs.commit(KEY, pieces)
        assert logs.commit(KEY, pieces).replayed
    assert here.seen() == {("t", 0): [*values[0], "foreign", *values[1]]}


def test_a_piece_is_not_adopted_if_the_log_has_grown(disk, here):
    with opened(disk) as logs:
        logs.create("t")
        log = logs.partition("t")
        (piece,) = here.stage(KEY, {("t", 0): ["a"]})
        staged = StagedFile(f"{ROOT}/{piece.name}", f"{ROOT}/linked", piece.size_bytes)
        before = disk.memory.read_bytes(staged.path)
        append_past_the_gate(logs, here.clock)
        with pytest.raises(OffsetOrderError, match="the log ends at 1: a segment from 0"):
            log.adopt(staged, leader_epoch=0, first_offset=0)
        assert disk.memory.read_bytes(staged.path) == before
        assert len(log.segments) == 1
