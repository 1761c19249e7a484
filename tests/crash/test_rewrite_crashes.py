"""The power is cut at every step of every rewrite, of undoing it, and again in the recovery after that: each
group of segments is the old one or the new one, no record is lost, and none comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stratalog.records.columns import decode_records
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.manifest import Manifest
from stratalog.rewrite.merge import Merge
from stratalog.rewrite.operation import GroupRecorder, Rewrite
from stratalog.rewrite.plan import rewrite_end
from stratalog.rewrite.recompress import Recompress
from stratalog.rewrite.reindex.examine import examine_log
from stratalog.rewrite.reindex.replace import replace_indexes
from stratalog.rewrite.undo.keep import UndoKeeper
from stratalog.rewrite.undo.kept import find_kept, forget_kept
from stratalog.rewrite.undo.restore import plan_undo, restore_group
from stratalog.rewrite.upgrade import Upgrade
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.read_only import open_view
from stratalog.testing import Explorer, Facts, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.crash.driver import CONFIG, FOLDER
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import T, sent

pytestmark = pytest.mark.scaled

COUNT = 24
ERASED = {b"k1"}
WIDER = LogConfig.of(
    internal_segment_bytes=850,
    segment_index_bytes=240,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
)
ID = "20240101T000000000-test"

Content = list[tuple[int, bytes | None, bytes | None]]


def disk() -> MemoryFileSystem:
    """A disk with a log of an idempotent producer, whose keys repeat, closed in order."""
    made = MemoryFileSystem(folders=[FOLDER])
    log = open_log(made)
    for number in range(COUNT):
        log.append(sent(7, number, b"value %03d" % number, key=b"k%d" % (number % 4)))
    log.close()
    made.sync_all()
    return made


def old_disk() -> MemoryFileSystem:
    """A disk with a log of magic 1, plain and in wrappers."""
    made = MemoryFileSystem(folders=[FOLDER])
    log = open_log(made)
    for number in range(0, COUNT, 2):
        pair = [
            Record(b"value %03d" % each, b"k%d" % (each % 4), T + each, offset=each)
            for each in (number, number + 1)
        ]
        codec = Codec.GZIP if number % 8 else Codec.NONE
        log.append_as_follower(build_messages(pair, MessageOptions(magic=1, codec=codec)))
    log.close()
    made.sync_all()
    return made


def open_log(disk: MemoryFileSystem, config: LogConfig = CONFIG, **how: Any) -> PartitionLog:
    return PartitionLog.open(
        FOLDER, config, clock=disk.clock, file_system=disk, watermark="written", **how
    )


def content(log: PartitionLog) -> Content:
    data = b"".join(each.log.read(0, each.size_bytes) for each in log.segments)
    return [(record.offset, record.key, record.value) for record in decode_records(data)]


def is_erased(row: tuple[int, bytes | None, bytes | None]) -> bool:
    return row[1] in ERASED


def keys() -> KeySet:
    return KeySet.of(ERASED)


REWRITES: dict[str, tuple[Callable[[], Rewrite], Callable[[], MemoryFileSystem]]] = {
    "merge": (Merge, disk),
    "recompress": (lambda: Recompress(Codec.GZIP), disk),
    "erase": (lambda: Erase(Targets(keys())), disk),
    "upgrade": (Upgrade, old_disk),
}


def rewritten(log: PartitionLog, rewrite: Rewrite, *, keeps: bool) -> Iterator[object]:
    """Rewrite a log, group after group, in segments of two old ones if they are merged."""
    end = rewrite_end(log.view)
    plan = rewrite.plan(log.view, WIDER, end, lambda _: None)
    assert len(plan.groups) > 1
    topic_partition = TopicPartition("t", 0)
    manifest = Manifest(ID, rewrite.verb, T, rewrite.options())
    keeper = UndoKeeper(log.file_system, FOLDER, topic_partition, manifest) if keeps else None
    return rewrite.carry_out(log, plan, WIDER, RewriteLimits(), GroupRecorder(keeper))


def undo(log: PartitionLog) -> bool:
    """Undo the rewrite as far as its originals are there; return whether they were."""
    for kept in find_kept(log.file_system, FOLDER):
        plan = plan_undo(log.file_system, log.view, kept)
        if kept.manifest is None:
            forget_kept(log.file_system, kept)
            return False
        assert plan.refusal is None
        with log.rewriting():
            for group in plan.groups:
                restore_group(log, kept, group, RewriteLimits())
        forget_kept(log.file_system, kept)
        return True
    return False


def explored(
    scenario: Callable[[MemoryFileSystem, Facts[str]], None],
    check: Callable[[MemoryFileSystem, Facts[str]], None],
    start: Callable[[], MemoryFileSystem],
    seed: int,
) -> Explorer[str]:
    return Explorer(
        scenario,
        check,
        seed=fresh(seed),
        states_per_point=sized(1, 3 * SCALE),
        depth=sized(1, 2),
        nested_points=sized(1, 3),
        nested_states=1,
        start=start,
    ).run()


@contextmanager
def loaded(file_system: MemoryFileSystem) -> Iterator[PartitionLog]:
    log = open_log(file_system, recovery_point=COUNT)
    assert log.report.cuts == []
    stages = (".cleaned", ".swap")
    assert not [path for path in file_system.paths() if path.endswith(stages)]
    yield log
    log.close()


def check_content(found: Content, before: Content, *, may_lack: bool, must_lack: bool) -> None:
    """Each record is there, but for those that are erased: these may be missing, or must be."""
    kept = [row for row in before if not is_erased(row)]
    assert [row for row in found if not (may_lack and is_erased(row))] == (
        kept if may_lack else before
    )
    assert all(row in before for row in found)
    if must_lack:
        assert not any(is_erased(row) for row in found[:-1] if row[0] < COUNT - 4)


@pytest.mark.parametrize("keeps", [False, True], ids=["plain", "kept"])
@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_is_safe_at_every_step(
    name: str, keeps: bool, record_property: Callable[[str, object], None]
) -> None:
    make, start = REWRITES[name]
    erases = name == "erase"
    before = content(open_log(start(), is_clean=True))

    def scenario(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        log = open_log(file_system, is_clean=True)
        for _ in rewritten(log, make(), keeps=keeps):
            pass
        facts.note("done")
        log.close()

    def check(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        view = open_view(FOLDER, file_system).view
        assert view.log_end == COUNT
        with loaded(file_system) as log:
            found = content(log)
            must_lack = erases and list(facts) == ["done"]
            check_content(found, before, may_lack=erases, must_lack=must_lack)
            if not erases:
                duplicate = (
                    name == "upgrade"
                    or log.append(
                        sent(7, COUNT - 1, b"value %03d" % (COUNT - 1), key=b"k3")
                    ).is_duplicate
                )
                assert duplicate, "the producer's state survives"
            was_kept = any(each.manifest for each in find_kept(file_system, FOLDER))
            assert was_kept or not keeps or list(facts) != ["done"], "the originals are kept"
            facts.note("undoing")
            undo(log)
            if was_kept:
                assert content(log) == before

    explorer = explored(scenario, check, start, 21)
    assert explorer.points > 20
    record_property("counted: simulated power cuts around rewrites", explorer.crashes)


@pytest.mark.parametrize("name", REWRITES)
def test_undoing_is_safe_at_every_step(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    make, start = REWRITES[name]
    before = content(open_log(start(), is_clean=True))

    def rewritten_disk() -> MemoryFileSystem:
        made = start()
        log = open_log(made, is_clean=True)
        for _ in rewritten(log, make(), keeps=True):
            pass
        log.close()
        log.remove_due(all_of_them=True)
        made.sync_all()
        return made

    after = content(open_log(rewritten_disk(), is_clean=True))

    def scenario(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        log = open_log(file_system, is_clean=True)
        assert undo(log)
        facts.note("undone")
        log.close()

    def check(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        with loaded(file_system) as log:
            found = content(log)
            assert all(row in found for row in after)
            assert all(row in before for row in found)
            undo(log)
            assert content(log) == before, "it is undone, or can be"
            assert find_kept(file_system, FOLDER) == []

    explorer = explored(scenario, check, rewritten_disk, 22)
    record_property("counted: simulated power cuts around undoing", explorer.crashes)


def test_reindexing_is_safe_at_every_step(
    record_property: Callable[[str, object], None],
) -> None:
    before = content(open_log(disk(), is_clean=True))

    def wrong() -> MemoryFileSystem:
        made = disk()
        for number, segment in enumerate(open_log(made, is_clean=True).segments[:-1]):
            path = segment.path(FileKind.TIME_INDEX if number % 2 else FileKind.OFFSET_INDEX)
            file = made.open_writable(path)
            file.write_at(0, b"\x00\x00\x00\x01" * (file.size() // 4))
            file.close()
        made.sync_all()
        return made

    def reindex(log: PartitionLog) -> int:
        found = list(
            examine_log(log.file_system, FOLDER, log.view, log.index_limits, lambda _: None)
        )
        with log.rewriting():
            return sum(replace_indexes(log, each, RewriteLimits()) for each in found)

    def scenario(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        log = open_log(file_system, is_clean=True)
        assert reindex(log)
        assert reindex(log) == 0
        facts.note("done")
        log.close()

    def check(file_system: MemoryFileSystem, facts: Facts[str]) -> None:
        with loaded(file_system) as log:
            assert content(log) == before
            if facts:
                assert reindex(log) == 0

    explorer = explored(scenario, check, wrong, 23)
    record_property("counted: simulated power cuts around reindexing", explorer.crashes)
