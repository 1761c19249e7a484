"""The tests of commits are tested: each of these bugs is planted in turn, and what claims it must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest

from stratalog.inspect.partition.visibility import Journals
from stratalog.manager.commits import apply as commit_apply
from stratalog.manager.commits import commits
from stratalog.manager.commits import compare as commit_compare
from stratalog.manager.commits import replay as commit_replay
from stratalog.manager.commits.compare import NOTHING, Reached
from stratalog.manager.commits.replay import Replay
from stratalog.manager.read import visibility
from stratalog.storage.commits import journal as commit_journal
from stratalog.storage.commits.journal import CommitJournal
from stratalog.storage.commits.records import Intent, Revised
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.log import adoption
from stratalog.storage.log.adoption import StagedFile
from stratalog.testing import Call, Change, ChangeKind, Explorer, Facts, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.crash.commit_world import Fact, new_disk
from tests.crash.test_commit_crashes import SCENARIOS, journals
from tests.crash.test_commit_failures import sweep

Planting = Callable[[ExitStack], None]


def crashes(name: str, *, depth: int = 1, states: int = 3) -> Callable[[], None]:
    """The power is cut at every step of a scenario."""

    def run() -> None:
        scenario = SCENARIOS[name]
        with journals(scenario):
            Explorer(
                scenario.run,
                scenario.check(),
                seed=5,
                states_per_point=states,
                depth=depth,
                nested_points=3,
                nested_states=1,
                start=new_disk,
            ).run()

    return run


def killed_first(name: str) -> Callable[[], None]:
    """The process is killed just before a line of the journal is on the disk, though everyone sees it; the
    power is cut at every step of the recovery."""

    def run() -> None:
        scenario, disk, facts = SCENARIOS[name], new_disk(), Facts[Fact]()
        moments: list[tuple[MemoryFileSystem, Facts[Fact]]] = []

        def watch(change: Change) -> None:
            if change.kind is ChangeKind.SYNC and change.path.endswith(".journal"):
                moments.append((disk.fork(), facts.fork()))

        disk.watcher = watch
        scenario.run(disk, facts)
        assert moments
        for left, known in moments:

            def recover(
                file_system: MemoryFileSystem,
                noted: Facts[Fact],
                known: Facts[Fact] = known,
            ) -> None:
                for fact in known:
                    noted.note(fact)
                scenario.check()(file_system, noted)

            Explorer(recover, scenario.check(), seed=5, states_per_point=1, start=left.fork).run()

    return run


def failed_syncs(name: str) -> Callable[[], None]:
    def run() -> None:
        with journals(SCENARIOS[name]):
            assert sweep(SCENARIOS[name], "EIO", calls=[Call.SYNC]) > 0

    return run


class Bug(NamedTuple):
    name: str
    plant: Planting
    harness: Callable[[], None]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def patched(target: Any, name: str, value: Any) -> Planting:
    return lambda stack: stack.enter_context(mock.patch.object(target, name, value))


def both(*plants: Planting) -> Planting:
    def plant(stack: ExitStack) -> None:
        for each in plants:
            each(stack)

    return plant


def nothing(*_: Any, **__: Any) -> None:
    pass


_real_append = CommitJournal.append
_real_apply = commit_apply.apply_pieces
_real_compare = commit_compare.compare_log
_real_finish = Replay._finish


def without_sync_of(kind: type[Intent]) -> Callable[..., None]:
    """Lines of this kind are written and not synced."""

    def append(self: CommitJournal, record: Any) -> None:
        if not isinstance(record, kind):
            _real_append(self, record)
            return
        real_open = self._file_system.open_writable
        with mock.patch.object(self._file_system, "open_writable", unsynced(real_open)):
            _real_append(self, record)

    return append


def unsynced(real_open: Any) -> Callable[..., WritableFile]:
    def opened(path: str, *, create: bool = False) -> WritableFile:
        file = real_open(path, create=create)
        return mock.Mock(wraps=file, sync=nothing, path=file.path)

    return opened


def replaced_without_sync(file_system: FileSystem, path: str, temporary: str, data: bytes) -> None:
    file_system.unlink(temporary)
    file = file_system.open_writable(temporary, create=True)
    file.write_at(0, data)
    file.close()
    file_system.rename(temporary, path)


def not_compared(*_: Any, **__: Any) -> Reached:
    return NOTHING


def taken_for_whole(
    log: Any, file_system: Any, root: Any, pieces: Any, start: int, begun: Any = NOTHING
) -> Reached:
    """Where the log reaches as far as the commit, it is believed to be all there."""
    end = start + sum(each.piece.records for each in pieces)
    if log.log_end >= end:
        return Reached(len(pieces), 0, end - start)
    return _real_compare(log, file_system, root, pieces, start, begun)


def applied_without_sync(log: Any, *args: Any) -> None:
    with mock.patch.object(type(log), "sync", nothing):
        _real_apply(log, *args)


def without_revised(self: CommitJournal, record: Any) -> None:
    if not isinstance(record, Revised):
        _real_append(self, record)


def truncated_first(log: Any, *args: Any) -> Reached:
    """What lies behind the prefix is cut away, whoever wrote it."""
    reached = _real_compare(log, *args)
    pieces, start = args[2], args[3]
    if reached.piece < len(pieces):
        log.truncate(start + reached.records)
    return reached


def pieces_first(self: Any, commit: Any) -> Any:
    """The pieces go before the end is written down."""
    with mock.patch.object(self._journal, "append", _swept_before(self, commit)):
        return _real_finish(self, commit)


def _swept_before(self: Any, commit: Any) -> Callable[..., None]:
    def append(record: Any) -> None:
        for partition in commit.intent.partitions:
            for each in partition.pieces:
                self._file_system.unlink(f"{self._root}/{each.piece.name}")
        _real_append(self._journal, record)

    return append


def stamped_without_sync(self: StagedFile, file_system: FileSystem, **names: Any) -> Any:
    with mock.patch.object(file_system, "open_writable", unsynced(file_system.open_writable)):
        return _real_stamp(self, file_system, **names)


_real_stamp = StagedFile.stamp


def adopted_again(
    log: Any, file_system: Any, root: str, pieces: Any, reached: Reached, start: int
) -> None:
    """A replay stamps a piece that is a segment already."""
    for planned in pieces[reached.piece :]:
        commit_apply._adopt(log, root, planned.piece, log.log_end)
    log.sync()


def not_begun(self: CommitJournal) -> None:
    """What a dead process wrote is acted upon, whether it is on the disk or not."""


def nothing_hidden(journals: Journals) -> dict[str, dict[TopicPartition, int]]:
    return {root: {} for root in journals._before}


BUGS = [
    Bug("the intent is not synced",
        both(patched(CommitJournal, "append", without_sync_of(Intent)),
             patched(commit_journal, "replace_file", replaced_without_sync)),
        crashes("small_pieces")),
    Bug("the end is written before the logs are synced",
        patched(commits, "apply_pieces", applied_without_sync), crashes("small_pieces")),
    Bug("a replay appends without comparing",
        patched(commit_replay, "compare_log", not_compared), crashes("small_pieces")),
    Bug("a replay goes by the log's end alone",
        patched(commit_replay, "compare_log", taken_for_whole), crashes("foreign_small")),
    Bug("no revised line before the rest is appended elsewhere",
        patched(CommitJournal, "append", without_revised), crashes("foreign_rolls", depth=2)),
    Bug("a replay cuts what others wrote",
        patched(commit_replay, "compare_log", truncated_first), crashes("foreign_small")),
    Bug("readers of files do not look at the journal",
        patched(Journals, "hidden", nothing_hidden), crashes("small_pieces")),
    Bug("readers of directories do not look at the journal",
        patched(visibility, "without_hidden", lambda views, _: views), crashes("small_pieces")),
    Bug("the pieces go before the end is written down",
        patched(Replay, "_finish", pieces_first),
        crashes("small_pieces", depth=2)),
    Bug("what is adopted is not synced",
        patched(adoption.StagedFile, "stamp", stamped_without_sync),
        crashes("large_pieces", states=5)),
    Bug("a replay acts on what is not on the disk",
        patched(CommitJournal, "begin", not_begun), killed_first("small_pieces")),
    Bug("a failed sync of the journal leaves no note",
        patched(CommitJournal, "_leave_note", nothing),
        failed_syncs("small_pieces")),
]  # fmt: skip


#: Found within half a second each; the others take ``make proof`` some seconds.
QUICK = (
    "a replay goes by the log's end alone",
    "a replay cuts what others wrote",
    "a replay acts on what is not on the disk",
    "a failed sync of the journal leaves no note",
)


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=() if bug.name in QUICK else pytest.mark.proof, id=bug.name)
        for bug in BUGS
    ],
)
def test_planted_bug_is_found(bug: Bug) -> None:
    with bug.planted(), pytest.raises(AssertionError):
        bug.harness()
