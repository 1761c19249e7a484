"""Readers of open logs see all of a commit or nothing of it, at every step of both, and wait for neither.

Two methods. A reader's look is four steps: it takes the states of the journals, the view of one partition,
the view of the other, and the states again. All of these are values, so every value that a commit ever
publishes is recorded, at each line that it executes, and every order of the four steps is tried on them.
Then a reader in another thread reads for real at each file-system call of a commit, which waits for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import pytest

import stratalog
from stratalog.errors import StorageError
from stratalog.manager.commits.commits import TopicPlan
from stratalog.manager.logs import Logs
from stratalog.manager.read import visibility
from stratalog.manager.read.reading import PartitionView
from stratalog.manager.read.visibility import look_past_commits
from stratalog.storage.commits.journal import JournalState
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.visibility import open_ends
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.views.log_view import LogView
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.manager.staging import Values, stage

T = TypeVar("T")

ZERO, ONE = PARTITIONS = TopicPartition("t", 0), TopicPartition("t", 1)
#: Segments of a few batches: pieces of several batches are adopted, small ones appended.
CONFIGS: Mapping[str, object] = {"internal.segment.bytes": 400, "index.interval.bytes": 100}


class Moment(NamedTuple):
    """What is published at one moment."""

    state: JournalState
    zero: LogView
    one: LogView


@dataclass
class Story:
    """Commits into two partitions, and everything that they publish."""

    logs: Logs
    disk: MemoryFileSystem
    moments: list[Moment] = field(default_factory=list)
    #: Of each commit that was begun: where it starts and ends in the two partitions.
    spans: dict[int, dict[TopicPartition, tuple[int, int]]] = field(default_factory=dict)
    version: int = 0

    def now(self) -> Moment:
        zero, one = (self.logs.partition(*each) for each in PARTITIONS)
        return Moment(self.logs._commits[0].state, zero.view, one.view)

    def note(self) -> None:
        now = self.now()
        if not self.moments or any(a is not b for a, b in zip(now, self.moments[-1], strict=True)):
            self.moments.append(now)

    def commit(self, zero: int, one: int) -> None:
        """Commit so many records to each partition, and note every value that is published meanwhile."""
        self.version += 1
        key = CommitKey("query", self.version)
        values: dict[tuple[str, int], list[str]] = {
            each: [f"{self.version}.{number}" for number in range(count)]
            for each, count in zip(PARTITIONS, (zero, one), strict=True)
            if count
        }
        pieces = stage(self.disk, ROOT, key, values, clock=self.disk.clock)
        before = self.now()
        self.spans[self.version] = {
            ZERO: (before.zero.log_end, before.zero.log_end + zero),
            ONE: (before.one.log_end, before.one.log_end + one),
        }
        with traced(self.note):
            self.logs.commit(key, pieces)
        self.note()


@contextmanager
def traced(note: Callable[[], None]) -> Iterator[None]:
    """Call ``note`` at every line that this thread executes in the package."""

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        sys.settrace(None)
        note()
        sys.settrace(trace)
        return local

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        return local if "stratalog/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.fixture
def story() -> Iterator[Story]:
    disk = memory()
    with open_memory(disk) as logs:
        logs.create("t", 2, CONFIGS)
        yield Story(logs, disk)


def looks(story: Story) -> Iterator[tuple[JournalState, Mapping[TopicPartition, LogView]]]:
    """Every look that a reader can have during the story: the state that it begins with, and what it sees."""
    moments = story.moments
    for first, zero, one, last in combinations_with_replacement(range(len(moments)), 4):
        # Each partition may be the one that is looked at first.
        for at_zero, at_one in {(zero, one), (one, zero)}:
            states = iter((moments[first].state, moments[last].state))
            views = [
                PartitionView(ZERO, moments[at_zero].zero),
                PartitionView(ONE, moments[at_one].one),
            ]
            shown = look_past_commits(partial(_next, states), partial(list, views), ROOT)
            yield moments[first].state, {each.topic_partition: each.view for each in shown}


def _next(states: Iterator[JournalState]) -> list[JournalState]:
    return [next(states)]


def check(story: Story) -> int:
    """Every look shows each commit whole or not at all, and those that were done when it began."""
    count = 0
    for state, views in looks(story):
        count += 1
        for version, spans in story.spans.items():
            seen = {
                # A commit starts at a batch: a view never ends within one.
                views[each].high_watermark >= end
                for each, (start, end) in spans.items()
                if start < end
            }
            partly = [
                each
                for each, (start, end) in spans.items()
                if start < views[each].high_watermark < end
            ]
            assert len(seen) == 1, f"commit {version} is seen in one partition only"
            assert not partly, f"commit {version} is seen in part in {partly}"
            assert seen == {True} or not state.is_done(CommitKey("query", version))
    return count


def test_a_commit_of_appended_and_adopted_pieces_is_seen_whole_at_every_order_of_steps(story):
    story.note()
    story.commit(2, 8)  # one is appended, the other becomes a segment
    assert len(story.moments) >= 6
    assert check(story) > 100


def test_two_commits_in_a_row_are_each_seen_whole_at_every_order_of_steps(story):
    story.note()
    story.commit(1, 1)
    story.commit(1, 1)
    assert check(story) > 1000


@pytest.mark.parametrize("call", [2, 3, 4, 5])  # the first is the journal's
def test_a_commit_that_failed_is_hidden_until_the_next_one_has_finished_it(story, call):
    files = FaultyFileSystem(story.disk)
    story.logs.close()
    story.logs = open_memory(files)
    story.note()
    files.arm(call, fault=Fault.ENOSPC, calls=[Call.WRITE])
    with pytest.raises(StorageError):
        story.commit(1, 1)
    ends = [story.logs.latest("t", number) for number in range(2)]
    assert ends == [0, 0]
    assert story.now().zero.log_end == (1 if call > 3 else 0)
    files.heal()
    story.note()
    story.commit(1, 1)
    assert [story.logs.latest("t", number) for number in range(2)] == [2, 2]
    # The second commit starts where the finished first one ends.
    story.spans[2] = {ZERO: (1, 2), ONE: (1, 2)}
    assert check(story) > 1000
    story.logs.close()


@pytest.mark.parametrize("bug", ["without_hidden", "hidden_between"])
def test_a_planted_bug_is_found(story, bug, monkeypatch):
    """Readers that hide nothing, or that take the state only once, are caught by the check."""
    story.note()
    story.commit(1, 1)
    if bug == "without_hidden":
        monkeypatch.setattr(visibility, "without_hidden", lambda views, _: views)
    else:
        monkeypatch.setattr(visibility, "hidden_between", lambda before, _: open_ends(before.open))
    with pytest.raises(AssertionError, match="commit 1 is seen"):
        check(story)


# --- a real reader at every call ---------------------------------------------------------------------


class Stepping(FaultyFileSystem):
    """Calls a function before and after each call that the thread of its maker makes."""

    def __init__(self) -> None:
        super().__init__(OsFileSystem())
        self._thread = threading.current_thread()
        self.step: Callable[[], None] | None = None

    def call(
        self,
        call: Call,
        path: str,
        perform: Callable[[], T],
        *,
        fail: Callable[[Fault], None] | None = None,
    ) -> T:
        step = self.step if threading.current_thread() is self._thread else None
        if step is not None:
            step()
        result = super().call(call, path, perform, fail=fail)
        if step is not None:
            step()
        return result


def read_elsewhere(logs: Logs, topic: str) -> dict[int, list[bytes | None]]:
    """What another thread reads, which nothing may keep waiting."""
    found: list[dict[int, list[bytes | None]]] = []

    def read() -> None:
        seen: dict[int, list[bytes | None]] = {}
        for record in logs.read(topic).records():
            seen.setdefault(record.partition, []).append(record.value)
        ends = {n: logs.latest(topic, n) for n in logs.topic(topic).partitions}
        assert all(ends[n] >= len(seen[n]) for n in seen)
        found.append(seen)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert not reader.is_alive(), "a reader waits for the commit"
    return found[0]


def test_a_reader_in_another_thread_sees_all_or_nothing_at_every_call_of_a_commit(tmp_path: Path):
    files = Stepping()
    with stratalog.open(tmp_path, file_system=files, clock=ManualClock()) as logs:
        logs.create("t", 2, CONFIGS)
        logs.create("idle", 1)
        logs.append("t", ["old"], partition=0)
        key = CommitKey("query", 1)
        values: Values = {ZERO: ["a", "b"], ONE: [f"c{n}" for n in range(8)]}
        pieces = stage(files, str(tmp_path), key, values, clock=ManualClock())
        nothing = {0: [b"old"]}
        everything = {0: [b"old", b"a", b"b"], 1: [f"c{n}".encode() for n in range(8)]}
        seen: list[bool] = []

        def step() -> None:
            found = read_elsewhere(logs, "t")
            assert found in (nothing, everything)
            seen.append(found == everything)

        read_elsewhere(logs, "t")
        files.step = step
        logs.commit(key, pieces)
        files.step = None
        assert read_elsewhere(logs, "t") == everything
        assert len(seen) > 50
        # Once it is seen, it stays so.
        assert seen == sorted(seen)
        assert seen[0] is False
        assert seen[-1] is True


def test_a_partition_that_is_not_open_yet_can_be_read_during_a_commit(tmp_path: Path):
    files = Stepping()
    with stratalog.open(tmp_path, file_system=files) as logs:
        logs.create("t", 2)
        logs.create("other", 2)
        logs.append("other", ["x"], partition=0)
    with stratalog.open(tmp_path, file_system=files) as logs:
        key = CommitKey("query", 1)
        pieces = stage(files, str(tmp_path), key, {ZERO: ["a"]}, clock=ManualClock())
        found = []

        def step() -> None:
            files.step = None
            found.append(read_elsewhere(logs, "other"))

        logs.partition("t", 0)
        files.step = step
        logs.commit(key, pieces)
        assert found[0] == {0: [b"x"]}


def test_topics_of_a_commit_are_created_once_while_another_thread_creates_topics(tmp_path: Path):
    with stratalog.open(tmp_path) as logs:

        def create() -> None:
            for number in range(20):
                logs.create(f"mine-{number}")

        thread = threading.Thread(target=create)
        thread.start()
        for version in range(1, 10):
            key = CommitKey("query", version)
            topic = f"new-{version}"
            pieces = stage(
                OsFileSystem(), str(tmp_path), key, {(topic, 0): ["a"]}, clock=ManualClock()
            )
            logs.commit(key, pieces, {topic: TopicPlan(1)})
            logs.checkpoint()
        thread.join()
        assert len(logs.topics()) == 29


def test_a_tail_of_open_logs_is_woken_when_a_commit_is_done(tmp_path: Path):
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 2)
        tail = logs.tail("t")
        key = CommitKey("query", 1)
        pieces = stage(
            OsFileSystem(), str(tmp_path), key, {ZERO: ["a"], ONE: ["b"]}, clock=ManualClock()
        )
        late = threading.Timer(0.05, logs.commit, (key, pieces))
        late.start()
        assert {next(tail).value, next(tail).value} == {b"a", b"b"}
        late.join()
