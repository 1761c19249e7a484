"""The exactly-once commit: what it does in the plain case, what it refuses before anything has changed, and
what it leaves behind."""

from __future__ import annotations

import errno
import multiprocessing
import pickle
import threading

import pytest

import stratalog
from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    LockedError,
    StorageError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.commits import apply as commit_apply
from stratalog.manager.commits.commits import TopicPlan, discard_pieces
from stratalog.manager.commits.threads import side_by_side
from stratalog.manager.logs import open_logs
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec, TimestampType
from stratalog.records.model import Record
from stratalog.storage.commits import piece as piece_module
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece, PieceWriter
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.testing import Call, Facts, Fault, FaultyFileSystem, ManualClock, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.crash.commit_world import Fact, World
from tests.manager.staging import Committing, batches

ROOT = "/data"
TWO = {"t": TopicPlan(2)}
TINY = {"internal.segment.bytes": 1000}


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[ROOT])


@pytest.fixture
def here(disk: MemoryFileSystem) -> Committing:
    return Committing(disk, ROOT, disk.clock)


def key(version: int = 0) -> CommitKey:
    return CommitKey("query", version)


def logs_of(disk: MemoryFileSystem, place: str) -> list[str]:
    return [
        path
        for path in disk.paths()
        if path.startswith(f"{ROOT}/{place}/") and path.endswith(".log")
    ]


def unchanged(disk: MemoryFileSystem) -> dict[str, bytes]:
    return {
        path: disk.read_bytes(path)
        for path in disk.paths()
        if "stratalog-piece" not in path and not path.endswith((".lock", "meta.properties"))
    }


# --- the plain case --------------------------------------------------------------------------------


def test_pieces_go_in_by_partition_and_task(here):
    first = here.stage(key(), {("t", 0): ["a", "b"], ("t", 1): ["c"]}, task=1)
    second = here.stage(key(), {("t", 0): ["d"]}, task=0)
    result = here.commit(key(), [*first, *second], TWO)
    assert here.seen() == {("t", 0): ["d", "a", "b"], ("t", 1): ["c"]}
    assert result.offsets("t", 0) == (0, 2)
    assert result.offsets("t", 1) == (0, 0)
    assert result.offsets("t", 7) is None
    assert result.records == 4
    assert (result.was_done_before, result.replayed, result.reports) == (False, False, ())


def test_the_same_commit_again_does_nothing(here, disk):
    first = here.put(key(), {("t", 0): ["a"]}, TWO)
    before = disk.read_bytes(f"{ROOT}/t-0/{0:020d}.log")
    again = here.put(key(), {("t", 0): ["a"]}, TWO, attempt=1)
    assert again.was_done_before
    assert again.spans == first.spans
    assert disk.read_bytes(f"{ROOT}/t-0/{0:020d}.log") == before
    assert not any(name.startswith("stratalog-piece") for name in here.names())


def test_an_older_version_is_done_and_its_details_are_forgotten(here):
    for version in range(70):
        here.put(key(version), {("t", 0): [f"{version}"]}, TWO)
    old = here.put(key(2), {("t", 0): ["2"]}, TWO, attempt=1)
    assert old.was_done_before
    assert old.spans is None
    assert here.put(key(69), {("t", 0): ["69"]}, attempt=1).offsets("t", 0) == (69, 69)
    assert here.seen() == {("t", 0): [f"{version}" for version in range(70)]}


def test_fresh_keys_are_commits_of_their_own(here):
    for _ in range(3):
        fresh = CommitKey.fresh()
        pieces = here.stage(fresh, {("t", 0): ["a"]})
        assert not here.commit(fresh, pieces, TWO).was_done_before
        assert here.commit(fresh, pieces, TWO).was_done_before
    assert here.seen() == {("t", 0): ["a", "a", "a"]}


def test_several_queries_have_versions_of_their_own(here):
    for owner in ("one", "other"):
        for version in (3, 4):
            here.put(CommitKey(owner, version), {("t", 0): [f"{owner}.{version}"]}, TWO)
    assert here.seen() == {("t", 0): ["one.3", "one.4", "other.3", "other.4"]}


def test_a_commit_without_records_counts(here):
    assert here.commit(key(5), [], None).spans == ()
    assert here.put(key(5), {("t", 0): ["late"]}, TWO).was_done_before
    assert here.seen() == {}


def test_pieces_and_results_travel(here):
    pieces = here.stage(key(), {("t", 0): ["a"]})
    travelled = pickle.loads(pickle.dumps(pieces))
    assert travelled == pieces
    result = here.commit(key(), travelled, TWO)
    assert pickle.loads(pickle.dumps(result)) == result


def test_what_others_wrote_stays_in_front(here, disk):
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 1)
        logs.append("t", ["x", "y"])
    result = here.put(key(), {("t", 0): ["a"]})
    assert result.offsets("t", 0) == (2, 2)
    assert here.seen() == {("t", 0): ["x", "y", "a"]}


def test_the_directory_is_left_in_order(here):
    here.put(key(), {("t", 0): ["a"]}, TWO)
    assert ".kafka_cleanshutdown" in here.names()


def test_a_directory_that_was_not_left_in_order_is_not_marked(here, disk):
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 2)
        logs.append("t", ["x"], partition=1)
    disk.unlink(f"{ROOT}/.kafka_cleanshutdown")
    here.put(key(), {("t", 0): ["a"]})
    assert ".kafka_cleanshutdown" not in here.names()
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.partition("t", 0)
        logs.partition("t", 1)
    assert ".kafka_cleanshutdown" in here.names()


def test_leader_epoch_is_the_log_s(here, disk):
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 1)
        logs.partition("t").append(
            bytes(batches(["x"], now_ms=disk.clock.now_ms())), leader_epoch=7
        )
    here.put(key(), {("t", 0): ["a"] * 40}, configs={"t": LogConfig()})
    here.put(key(1), {("t", 0): ["b"]})
    epochs = stratalog.scan(ROOT, columns=["leader_epoch"], file_system=disk).to_table()
    assert set(epochs["leader_epoch"].to_pylist()) == {7}


def test_open_logs_commit_too(disk):
    here = Committing(disk, ROOT, disk.clock)
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 2)
        pieces = here.stage(key(), {("t", 0): ["a"], ("t", 1): ["b"]})
        with pytest.raises(LockedError, match="write through it"):
            here.commit(key(), pieces)
        assert logs.commit(key(), pieces).records == 2
        assert logs.commit(key(), pieces).was_done_before
        logs.append("t", ["c"], partition=0)
        assert [r.value for r in logs.read("t", 0).records()] == [b"a", b"c"]
    assert here.seen() == {("t", 0): ["a", "c"], ("t", 1): ["b"]}


# --- how pieces go in ------------------------------------------------------------------------------


def test_large_pieces_become_segments(here, disk):
    configs = {"t": LogConfig.of(TINY)}
    values = [f"value {number:03d} of a piece" for number in range(20)]
    pieces = here.stage(key(), {("t", 0): values}, configs=configs)
    assert len(pieces) > 1
    here.commit(key(), pieces, {"t": TopicPlan(1, TINY)})
    held = [disk.read_bytes(path) for path in logs_of(disk, "t-0")]
    assert [len(data) for data in held] == [piece.size_bytes for piece in pieces]
    here.put(key(1), {("t", 0): ["small"]})
    assert here.seen() == {("t", 0): [*values, "small"]}
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        for offset in range(21):
            assert logs.partition("t").read(offset, 1).start_offset == offset


def test_without_second_names_pieces_are_appended(disk):
    """Not every file system has links."""

    class NoLinks(FaultyFileSystem):
        def link(self, old: str, new: str) -> None:
            raise StorageError("operation not permitted", path=new, errno=errno.EPERM)

    here = Committing(NoLinks(disk), ROOT, disk.clock)
    values = [f"value {number:03d} of a piece" for number in range(20)]
    here.put(
        key(), {("t", 0): values}, {"t": TopicPlan(1, TINY)}, configs={"t": LogConfig.of(TINY)}
    )
    assert here.seen() == {("t", 0): values}
    assert not any(name.startswith("stratalog-piece") for name in here.names())


def test_what_was_made_for_a_commit_that_is_refused_goes(here, disk):
    plan = {"t": TopicPlan(2, {"compression.type": "zstd"})}
    pieces = here.stage(key(), {("t", 0): ["a"], ("t", 1): ["b"]})
    disk.unlink(f"{ROOT}/{pieces[1].name}")
    with pytest.raises(CorruptionError):
        here.commit(key(), pieces, plan)
    assert [name for name in here.names() if "piece" in name] == [pieces[0].name]


def test_later_appends_go_to_the_segment_that_was_adopted(here, disk):
    configs = {"internal.segment.bytes": 4000}
    values = [f"value {number:03d} of a piece" for number in range(30)]
    here.put(
        key(), {("t", 0): values}, {"t": TopicPlan(1, configs)},
        configs={"t": LogConfig.of(configs)},
    )  # fmt: skip
    assert len(logs_of(disk, "t-0")) == 1
    size = len(disk.read_bytes(logs_of(disk, "t-0")[0]))
    here.put(key(1), {("t", 0): ["small"]})
    (path,) = logs_of(disk, "t-0")
    assert len(disk.read_bytes(path)) > size
    assert here.seen() == {("t", 0): [*values, "small"]}


@pytest.mark.parametrize("batches_each", [1, 3])
def test_small_commits_leave_the_segments_that_rolling_by_size_leaves(here, disk, batches_each):
    """As many batches appended one by one make the same files."""
    configs = {"internal.segment.bytes": 1500}
    other = MemoryFileSystem(folders=[ROOT], clock=disk.clock)
    with open_logs(ROOT, file_system=other, clock=disk.clock) as plain:
        plain.create("t", 1, configs)
        for version in range(60):
            values = [f"{version:04d} {number}".ljust(50) for number in range(batches_each)]
            here.put(
                key(version), {("t", 0): values}, {"t": TopicPlan(1, configs)},
                configs={"t": LogConfig.of(configs)}, batch_bytes=1,
            )  # fmt: skip
            for value in values:
                plain.partition("t").append(
                    bytes(batches([value], now_ms=disk.clock.now_ms(), batch_bytes=1))
                )
    assert len(logs_of(disk, "t-0")) > 4
    assert [disk.read_bytes(p) for p in logs_of(disk, "t-0")] == [
        other.read_bytes(p) for p in logs_of(other, "t-0")
    ]


def test_log_append_time_is_the_commit_s(here, disk):
    plan = {"t": TopicPlan(1, {"message.timestamp.type": "LogAppendTime"})}
    pieces = here.stage(key(), {("t", 0): ["a", "b"]})
    disk.clock.advance(5000)
    now = disk.clock.now_ms()
    here.commit(key(), pieces, plan)
    with open_logs(ROOT, read_only=True, file_system=disk, clock=disk.clock) as logs:
        found = list(logs.read("t").records())
    assert [(r.timestamp, r.timestamp_type) for r in found] == [
        (now, TimestampType.APPEND_TIME)
    ] * 2
    assert not any(name.startswith("stratalog-piece") for name in here.names())


def test_the_topic_s_codec_wins(here, disk):
    values = [f"a value that repeats itself {number}" for number in range(50)]
    here.put(
        key(), {("t", 0): values}, {"t": TopicPlan(1, {"compression.type": "lz4"})},
        options=BatchOptions(codec=Codec.GZIP),
    )  # fmt: skip
    table = stratalog.scan(ROOT, columns=["codec", "value"], file_system=disk).to_table()
    assert set(table["codec"].to_pylist()) == {"lz4"}
    assert [v.decode() for v in table["value"].to_pylist()] == values


# --- refused before anything has changed -----------------------------------------------------------


def test_a_topic_that_is_not_there_is_refused(here, disk):
    with pytest.raises(UnknownPartitionError, match="no topic 'u'"):
        here.put(key(), {("u", 0): ["a"]})
    assert read_journal(disk, ROOT).last_number == 0
    assert here.put(key(), {("t", 0): ["a"]}, TWO, attempt=1).records == 1


@pytest.mark.parametrize(
    ("topics", "partition", "error", "says"),
    [
        ({"t": TopicPlan(3)}, 0, UsageError, "has 2 partitions, and was to be created with 3"),
        (None, 2, UnknownPartitionError, "no partition 2"),
        ({"u": TopicPlan(0)}, 0, UsageError, "at least one partition"),
        ({"u": TopicPlan(1, {"retention.ms": "soon"})}, 0, UsageError, "retention.ms"),
        ({"a/b": TopicPlan(1)}, 0, UsageError, "not a topic"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_has_changed(
    here, disk, topics, partition, error, says
):
    here.put(key(), {("t", 0): ["a"]}, TWO)
    before = unchanged(disk)
    with pytest.raises(error, match=says):
        here.put(key(1), {("t", partition): ["b"]}, topics)
    assert unchanged(disk) == before
    assert here.seen() == {("t", 0): ["a"]}


def test_a_new_topic_s_partition_beyond_its_count_is_refused(here):
    with pytest.raises(UnknownPartitionError, match="the topic is to have 2 partitions"):
        here.put(key(), {("t", 2): ["a"]}, TWO)


def test_records_without_a_key_are_refused_by_a_compacted_topic(here, disk):
    plan = {"t": TopicPlan(2, {"cleanup.policy": "compact"})}
    here.put(key(), {("t", 0): ["a"]}, plan)
    before = unchanged(disk)
    writer = PieceWriter(disk, ROOT, key(1), task=0, attempt=0)
    now = disk.clock.now_ms()
    writer.append(TopicPartition("t", 0), build_batch([Record(b"v", b"k", timestamp=now)]))
    writer.append(TopicPartition("t", 1), build_batch([Record(b"v", timestamp=now)]))
    with pytest.raises(InvalidRecordError, match="no key"):
        here.commit(key(1), writer.finish())
    assert unchanged(disk) == before


def test_a_record_of_the_far_future_is_refused(here, disk):
    here.put(key(), {("t", 0): ["a"]}, TWO)
    writer = PieceWriter(disk, ROOT, key(1), task=0, attempt=0)
    late = disk.clock.now_ms() + 3_700_000
    writer.append(TopicPartition("t", 0), build_batch([Record(b"v", b"k", timestamp=late)]))
    with pytest.raises(InvalidTimestampError, match="after"):
        here.commit(key(1), writer.finish())


@pytest.mark.parametrize("damage", ["gone", "short", "flipped", "longer batch"])
def test_a_damaged_piece_is_refused_and_nothing_has_changed(here, disk, damage):
    here.put(key(), {("t", 0): ["a"]}, TWO)
    before = unchanged(disk)
    pieces = here.stage(key(1), {("t", 0): ["b", "c"], ("t", 1): ["d"]})
    path = f"{ROOT}/{pieces[1].name}"
    if damage == "gone":
        disk.unlink(path)
    elif damage == "short":
        disk.open_writable(path).truncate(30)
    elif damage == "flipped":
        disk.open_writable(path).write_at(65, b"\xff")
    else:
        disk.open_writable(path).write_at(8, b"\x7f")
    with pytest.raises(CorruptionError, match="write the batch again"):
        here.commit(key(1), pieces)
    assert unchanged(disk) == before


def test_pieces_of_another_commit_are_refused(here):
    pieces = here.stage(key(1), {("t", 0): ["a"]})
    with pytest.raises(UsageError, match="was not staged for the commit query 2"):
        here.commit(key(2), pieces, TWO)


def test_two_attempts_of_a_task_are_refused(here):
    pieces = [
        *here.stage(key(), {("t", 0): ["a"]}),
        *here.stage(key(), {("t", 0): ["a"]}, attempt=1),
    ]
    with pytest.raises(UsageError, match="attempts 0 and 1"):
        here.commit(key(), pieces, TWO)
    with pytest.raises(UsageError, match="is there twice"):
        here.commit(key(), [pieces[0], pieces[0]], TWO)


def test_a_log_directory_that_is_none_is_refused(disk):
    disk.open_writable(f"{ROOT}/novel.txt", create=True).close()
    here = Committing(disk, ROOT, disk.clock)
    with pytest.raises(UsageError, match="not a log directory"):
        here.put(key(), {("t", 0): ["a"]}, TWO)


@pytest.mark.parametrize("owner", ["", "a\nb", "x" * 2000])
def test_a_key_without_a_name_is_refused(owner):
    with pytest.raises(UsageError, match="owner"):
        CommitKey(owner, 0)


@pytest.mark.parametrize("version", [-1, 2**63, True, "7"])
def test_a_key_without_a_number_is_refused(version):
    with pytest.raises(UsageError, match="version"):
        CommitKey("q", version)


# --- locks -----------------------------------------------------------------------------------------


def test_another_writer_is_named(here, disk):
    with (
        open_logs(ROOT, file_system=disk, clock=disk.clock),
        pytest.raises(LockedError, match="stop it, or write through it"),
    ):
        here.put(key(), {("t", 0): ["a"]}, TWO)


def _commit_some(root: str, owner: str, count: int) -> None:
    here = Committing(OsFileSystem(), root, SYSTEM_CLOCK)
    here.lock_timeout_s = 60
    for version in range(count):
        values = [f"{owner}.{version}.{number}" for number in range(3)]
        here.put(CommitKey(owner, version), {("t", 0): values, ("t", 1): values}, TWO)


def test_several_queries_commit_at_once_and_readers_see_whole_commits(tmp_path):
    """Processes queue on the lock; a reader beside them sees the same commits in both partitions."""
    root = str(tmp_path)
    _commit_some(root, "first", 1)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_commit_some, args=(root, owner, 8)) for owner in ("one", "two")
    ]
    for each in writers:
        each.start()
    here = Committing(OsFileSystem(), root, SYSTEM_CLOCK)
    looks = 0
    while any(each.is_alive() for each in writers):
        seen = here.seen()
        assert sorted(seen[("t", 0)]) == sorted(seen[("t", 1)])
        with open_logs(root, read_only=True) as logs:
            both = list(logs.read("t").records())
        by_partition = [{r.value for r in both if r.partition == n} for n in (0, 1)]
        assert by_partition[0] == by_partition[1] >= {value.encode() for value in seen[("t", 0)]}
        looks += 1
    for each in writers:
        each.join()
        assert each.exitcode == 0
    assert looks > 0
    assert len(here.seen()[("t", 0)]) == 3 * 17


# --- pieces that nobody commits --------------------------------------------------------------------


def test_orphans_of_a_version_that_is_done_go(here):
    lost = here.stage(key(), {("t", 0): ["never"]}, attempt=9)
    here.put(key(), {("t", 0): ["a"]}, TWO)
    assert lost[0].name not in here.names()


def test_pieces_that_may_still_be_committed_stay(here, disk):
    waiting = here.stage(CommitKey("slow", 3), {("t", 0): ["later"]})
    here.put(key(), {("t", 0): ["a"]}, TWO)
    disk.clock.advance(80_000_000)
    # Whoever stages for the same commit says that it goes on.
    waiting += here.stage(CommitKey("slow", 3), {("t", 1): ["later"]}, task=1)
    disk.clock.advance(80_000_000)
    here.put(key(1), {("t", 0): ["b"]})
    assert {piece.name for piece in waiting} <= here.names()
    here.commit(CommitKey("slow", 3), waiting)
    assert here.seen() == {("t", 0): ["a", "b", "later"], ("t", 1): ["later"]}


def test_orphans_of_a_day_ago_go_and_nothing_else(here, disk):
    here.stage(CommitKey("gone", 3), {("t", 0): ["never"]})
    disk.open_writable(f"{ROOT}/meta.properties.tmp", create=True).close()
    here.put(key(), {("t", 0): ["a"]}, TWO)
    disk.open_writable(f"{ROOT}/stratalog-piece.of-somebody", create=True).close()
    disk.clock.advance(86_400_001)
    here.put(key(1), {("t", 0): ["b"]})
    left = {name for name in here.names() if name.startswith("stratalog-piece")}
    assert left == {"stratalog-piece.of-somebody"}


def test_discarded_pieces_go_unless_a_commit_has_promised_them(here, disk):
    pieces = here.stage(key(), {("t", 0): ["a"], ("t", 1): ["b"]})
    faulty = FaultyFileSystem(disk)
    broken = Committing(faulty, ROOT, disk.clock)
    here.put(CommitKey("other", 0), {("t", 0): ["x"]}, TWO)
    faulty.arm(1, fault=Fault.ENOSPC, sticky=True, calls=[Call.WRITE])
    with pytest.raises(StorageError):
        broken.commit(key(), pieces)
    discard_pieces(ROOT, pieces, file_system=disk)
    assert not any(
        piece.name in here.names() for piece in pieces
    )  # there was no room for the intent
    pieces = here.stage(key(), {("t", 0): ["a"], ("t", 1): ["b"]}, attempt=1)
    for number in range(1, 40):
        faulty.arm(number, fault=Fault.ENOSPC, sticky=True, calls=[Call.WRITE])
        with pytest.raises(StorageError) as caught:
            broken.commit(key(), pieces)
        if read_journal(disk, ROOT).open:
            break
    assert any("the commit is decided" in note for note in caught.value.__notes__)
    discard_pieces(ROOT, pieces, file_system=disk)
    assert all(piece.name in here.names() for piece in pieces)
    faulty.heal()
    assert here.seen() == {("t", 0): ["x"]}
    again = here.put(key(), {("t", 0): ["a"], ("t", 1): ["b"]}, attempt=2)
    assert again.was_done_before
    assert again.replayed
    assert "was interrupted, and is completed now" in again.reports[0]
    assert here.seen() == {("t", 0): ["x", "a"], ("t", 1): ["b"]}


# --- after a crash ---------------------------------------------------------------------------------


def half_done(disk: MemoryFileSystem, calls: int, values: dict[tuple[str, int], list[str]]) -> None:
    """A commit that stops at its n-th write."""
    faulty = FaultyFileSystem(disk)
    here = Committing(faulty, ROOT, disk.clock)
    here.put(CommitKey("before", 0), {("t", 0): ["x"], ("t", 1): ["y"]}, TWO)
    pieces = here.stage(key(), values)
    faulty.arm(calls, fault=Fault.INTERRUPT, calls=[Call.WRITE])
    with pytest.raises(KeyboardInterrupt):
        here.commit(key(), pieces)
    assert read_journal(disk, ROOT).open


def test_opening_for_writing_finishes_what_was_promised(here, disk):
    half_done(disk, 3, {("t", 0): ["a"], ("t", 1): ["b"]})
    assert here.seen() == {("t", 0): ["x"], ("t", 1): ["y"]}
    with open_logs(ROOT, read_only=True, file_system=disk, clock=disk.clock) as logs:
        assert [logs.latest("t", n) for n in (0, 1)] == [1, 1]
        assert [r.value for r in logs.read("t").records()] == [b"x", b"y"]
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        assert [logs.latest("t", n) for n in (0, 1)] == [2, 2]
    assert here.seen() == {("t", 0): ["x", "a"], ("t", 1): ["y", "b"]}
    assert not any(name.startswith("stratalog-piece") for name in here.names())


def test_foreign_records_are_kept_and_the_rest_follows(here, disk):
    half_done(disk, 3, {("t", 0): ["a"], ("t", 1): ["b"]})
    for number in (0, 1):
        world = World(disk, Facts[Fact](), disk.clock, {})
        world.append_beside(("t", number), f"foreign {number}")
    assert here.seen() == {("t", 0): ["x"], ("t", 1): ["y"]}
    result = here.put(key(), {("t", 0): ["a"], ("t", 1): ["b"]}, attempt=1)
    assert result.replayed
    assert any("others have written since" in each for each in result.reports)
    assert here.seen() == {("t", 0): ["x", "a", "foreign 0"], ("t", 1): ["y", "foreign 1", "b"]}
    assert result.offsets("t", 1) == (2, 2)


@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_a_replay_without_its_pieces_names_the_journal_and_what_to_do(here, disk, damage):
    half_done(disk, 1, {("t", 0): ["a"], ("t", 1): ["b"]})
    (path,) = (p for p in disk.paths() if "stratalog-piece" in p and p.endswith(".1"))
    if damage == "gone":
        disk.unlink(path)
    else:
        disk.open_writable(path).write_at(65, b"\xff")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="put the piece back") as caught:
            open_logs(ROOT, file_system=disk, clock=disk.clock)
        assert caught.value.reason == "commit_replay"
        assert caught.value.path == f"{ROOT}/stratalog-commits.journal"
    assert here.seen() == {("t", 0): ["x"], ("t", 1): ["y"]}


def test_a_replay_without_its_partition_says_where_it_may_be(disk):
    half_done(disk, 1, {("t", 0): ["a"], ("t", 1): ["b"]})
    disk.make_dir("/elsewhere")
    disk.rename(f"{ROOT}/t-1", "/elsewhere/t-1")
    with pytest.raises(CorruptionError, match="open this directory together"):
        open_logs(ROOT, file_system=disk, clock=disk.clock)
    disk.rename("/elsewhere/t-1", f"{ROOT}/t-1")
    open_logs(ROOT, file_system=disk, clock=disk.clock).close()


def test_a_tail_shows_a_commit_when_it_is_done(tmp_path):
    here = Committing(OsFileSystem(), str(tmp_path), SYSTEM_CLOCK)
    here.put(key(), {("t", 0): ["a"], ("t", 1): ["b"]}, TWO)
    with stratalog.open(tmp_path, read_only=True) as logs:
        tail = logs.tail("t", start=0, timeout_s=5)
        assert {next(tail).value, next(tail).value} == {b"a", b"b"}
        late = threading.Timer(0.1, here.put, (key(1), {("t", 0): ["c"], ("t", 1): ["d"]}))
        late.start()
        assert {next(tail).value, next(tail).value} == {b"c", b"d"}
        late.join()


def test_batches_above_what_the_topic_takes_are_refused_when_staged(disk):
    writer = PieceWriter(
        disk, ROOT, key(), task=0, attempt=0, configs={"t": LogConfig.of(max_message_bytes=100)}
    )
    with pytest.raises(BatchTooLargeError):
        writer.append(TopicPartition("t", 0), build_batch([Record(b"v" * 200, timestamp=0)]))
    with pytest.raises(UsageError, match="finished, or failed"):
        writer.finish()
    writer.abandon()
    assert disk.paths() == []


def test_nothing_of_what_is_staged_stays_when_it_is_abandoned(disk):
    writer = PieceWriter(disk, ROOT, key(), task=0, attempt=0)
    for number in range(300):  # more than are open at once
        writer.append(TopicPartition("t", number), build_batch([Record(b"v", timestamp=0)]))
        writer.append(TopicPartition("t", number % 7), build_batch([Record(b"w", timestamp=0)]))
    assert len(disk.paths()) == 300
    writer.abandon()
    assert disk.paths() == []


def test_staging_makes_the_directory_that_is_not_there(tmp_path):
    here = Committing(OsFileSystem(), str(tmp_path / "new"), SYSTEM_CLOCK)
    here.put(key(), {("t", 0): ["a"]}, TWO)
    assert here.seen() == {("t", 0): ["a"]}


# --- several partitions at once --------------------------------------------------------------------


def _staged(here: Committing) -> list[Piece]:
    """400 records for each of seven partitions from each of three tasks."""
    return [
        piece
        for task in range(3)
        for piece in here.stage(
            key(),
            {("t", number): [f"{task}-{number}-{n}" for n in range(400)] for number in range(7)},
            task=task,
        )
    ]


def _committed(root, threads: int, configs: dict[str, object]) -> Committing:
    here = Committing(OsFileSystem(), str(root), ManualClock())
    here.threads = threads
    here.commit(key(), _staged(here), {"t": TopicPlan(7, configs)})
    return here


@pytest.mark.parametrize("configs", [{}, {"compression.type": "gzip"}, TINY])
def test_threads_write_what_one_writes(tmp_path, monkeypatch, configs):
    for each in (commit_apply, piece_module):
        monkeypatch.setattr(each, "_BEGIN_BYTES", 1000)
    one = _committed(tmp_path / "one", 1, configs)
    several = _committed(tmp_path / "several", 4, configs)
    assert several.seen() == one.seen()
    logs = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").glob("t-*/*.log")]
    assert len(logs) >= 7
    for path in logs:
        assert (tmp_path / "several" / path).read_bytes() == (tmp_path / "one" / path).read_bytes()
    assert not any(name.startswith("stratalog-piece") for name in several.names())


def test_a_thread_that_fails_leaves_a_promise_that_is_kept(tmp_path):
    whole = _committed(tmp_path / "whole", 1, {}).seen()
    files = FaultyFileSystem(OsFileSystem())
    here = Committing(files, str(tmp_path / "data"), SYSTEM_CLOCK)
    here.threads = 4
    pieces = _staged(here)
    files.arm(40, fault=Fault.EIO, calls={Call.WRITE})
    with pytest.raises(StorageError) as caught:
        here.commit(key(), pieces, {"t": TopicPlan(7)})
    assert "is decided" in caught.value.__notes__[0]
    assert here.seen() != whole
    with stratalog.open(tmp_path / "data"):
        pass
    assert here.seen() == whole


def test_side_by_side_raises_the_first_error_and_begins_nothing_more():
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise UsageError("three")
        return number * 2

    assert side_by_side(work, range(3), 2) == [0, 2, 4]
    for threads in (1, 2):
        begun.clear()
        with pytest.raises(UsageError, match="three"):
            side_by_side(work, range(10_000), threads)
        assert begun[:4] == [0, 1, 2, 3]
        assert len(begun) < 10_000
