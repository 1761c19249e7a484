"""Topics: their file, where their partitions go, and that they come into being whole."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog
from stratalog.errors import (
    CorruptionError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.logs import Logs
from stratalog.manager.root.catalogue import choose_directories
from stratalog.manager.root.topic_file import Topic, TopicEntry, TopicFile
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.formats.partition_metadata import decode_partition_metadata
from stratalog.storage.log_config import LogConfig
from stratalog.testing import Call, Facts, Fault, FaultyFileSystem, MemoryFileSystem, explore
from tests.manager.logdirs import ROOT, memory, open_memory, tree, values
from tests.scale import SCALE, fresh, sized

ID = bytes(range(16))
FILE = "stratalog-topics.json"


# --- the file --------------------------------------------------------------------------------------


def test_file_keeps_ids_partitions_configs_and_plans(tmp_path):
    file = TopicFile(OsFileSystem(), str(tmp_path))
    file.read()
    assert file.entries == {}
    config = LogConfig.of({"retention.ms": "60000"}, cleanup_policy="compact,delete")
    entries = [
        TopicEntry(Topic("a", ID, (0, 2), config)),
        TopicEntry(Topic("b", None, ())),
        TopicEntry(Topic("c", ID, (1,)), {"ABEiM0RVZneImaq7zN3u_w": (1, 3), "x": ()}, None, 4),
    ]
    for entry in entries:
        file.put(entry)
    again = TopicFile(OsFileSystem(), str(tmp_path))
    again.read()
    assert list(again.entries.values()) == entries
    assert again.entries["a"].topic.config.overrides() == {
        "retention.ms": "60000", "cleanup.policy": "compact,delete",
    }  # fmt: skip
    again.remove("b")
    again.remove("nobody")
    file.read()
    assert sorted(file.entries) == ["a", "c"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


WRONG: list[bytes] = [
    b"", b"x", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"version": 2, "topics": []}',
    b'{"version": 1}', b'{"version": 1, "topics": {}}', b'{"version": 1, "topics": [1]}',
    b'{"version": 1, "topics": [{}]}',
]  # fmt: skip
GOOD: dict[str, Any] = {
    "name": "a",
    "id": "ABEiM0RVZneImaq7zN3u_w",
    "partitions": [0],
    "configs": {},
}
CHANGES: list[dict[str, Any]] = [
    {"name": "a/b"}, {"name": 5}, {"name": ""}, {"id": "short"}, {"id": 5},
    {"partitions": 5}, {"partitions": [-1]}, {"partitions": [2**31]}, {"partitions": ["0"]},
    {"partitions": [True]}, {"configs": []}, {"configs": "abc"}, {"configs": {"nonsense": 1}},
    {"configs": {"retention.ms": "x"}}, {"being_made": 5}, {"being_made": {"x": 5}},
    {"being_made": {"x": [-1]}}, {"total_partitions": -1}, {"total_partitions": "4"},
    {"total_partitions": 10**9},
]  # fmt: skip
WRONG += [json.dumps({"version": 1, "topics": [{**GOOD, **each}]}).encode() for each in CHANGES]


@pytest.mark.parametrize("data", WRONG, ids=lambda data: data.decode("ascii", "replace")[:60])
def test_damaged_file_is_one_typed_error_that_says_what_to_do(tmp_path, data):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    (tmp_path / FILE).write_bytes(data)
    before = tree(tmp_path)
    with pytest.raises(CorruptionError, match="remove it") as caught:
        stratalog.open(tmp_path)
    assert caught.value.path == str(tmp_path / FILE)
    assert tree(tmp_path) == before
    with stratalog.open(tmp_path, read_only=True) as logs:  # a reader goes on, and says so
        assert [each.reason for each in logs.damage] == ["topics_file"]
        assert values(logs, "a") == [b"x"]
    (tmp_path / FILE).unlink()
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x"]


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_topics_or_that_error(data):
    file_system = memory()
    handle = file_system.open_writable(f"{ROOT}/{FILE}", create=True)
    if data:
        handle.write_at(0, data)
    with pytest.raises(CorruptionError):
        TopicFile(file_system, ROOT).read()


# --- creating --------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path / "logs") as opened:
        yield opened


def test_topic_has_its_partitions_id_and_configs(tmp_path, logs):
    topic = logs.create("orders", 3, {"retention.ms": 60000}, segment_bytes="2097152")
    assert (topic.name, topic.partitions, topic.partition_count) == ("orders", (0, 1, 2), 3)
    assert (topic.config.retention_ms, topic.config.segment_bytes) == (60000, 2097152)
    assert topic.topic_id is not None
    assert logs.topic("orders") == topic == logs.topics()["orders"]
    for number in range(3):
        path = tmp_path / "logs" / f"orders-{number}" / "partition.metadata"
        assert decode_partition_metadata(path.read_bytes()).topic_id == topic.topic_id
    assert logs.partition("orders", 1).config == topic.config


def test_reopening_keeps_them(tmp_path):
    with stratalog.open(tmp_path) as logs:
        topic = logs.create("orders", 2, compression_type="zstd", max_message_bytes=5000)
    with stratalog.open(tmp_path) as logs:
        assert logs.topic("orders") == topic
        assert logs.topic("orders").config.overrides() == {
            "compression.type": "zstd", "max.message.bytes": "5000",
        }  # fmt: skip
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("orders") == topic


@pytest.mark.parametrize(
    ("configs", "match"),
    [
        ({"retention.msx": 1}, "did you mean retention.ms"),
        ({"log.retention.ms": 1}, "did you mean retention.ms"),
        ({"nonsense": 1}, "'nonsense' is not a topic config"),
        ({"retention.ms": "soon"}, "retention.ms: 'soon' is not"),
        ({"retention_ms": -5}, "retention.ms: -5 is not"),
        ({"segment.bytes": 100}, "segment.bytes: 100 is not"),
        ({"compression.type": "rar"}, "zstd"),
        ({"message.format.version": "2.8"}, "is gone"),
        ({"retention.ms": 1, "retention_ms": 2}, "given twice"),
    ],
)
def test_wrong_config_says_what_is_right_and_nothing_is_made(tmp_path, logs, configs, match):
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=match):
        logs.create("a", 1, configs)
    with pytest.raises(UsageError, match="given twice"):
        logs.create("a", 1, {"retention.ms": 1}, retention_ms=1)
    assert logs.topics() == {}
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n", "../x"])
def test_name_that_kafka_would_not_take(tmp_path, logs, name):
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="is not a topic"):
        logs.create(name)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["a", "a-1", "a-b-2", "A.b_c-3", "__x", "9", "-", "x" * 249])
def test_name_that_kafka_takes(logs, name):
    logs.create(name, 2)
    logs.append(name, ["x"], partition=1)
    assert values(logs, name, 1) == [b"x"]


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", True])
def test_number_of_partitions_that_cannot_be(logs, count):
    with pytest.raises(UsageError, match="at least one partition"):
        logs.create("a", count)


def test_topic_that_is_there_is_refused(logs):
    logs.create("a", 2)
    with pytest.raises(UsageError, match="'a' is there already"):
        logs.create("a")
    assert logs.topic("a").partitions == (0, 1)


def test_folder_whose_name_would_be_too_long_is_refused_before_anything_is_made(tmp_path):
    name = "x" * 249
    (tmp_path / f"{name}-99999").mkdir()
    with stratalog.open(tmp_path) as logs, pytest.raises(UsageError, match="256 characters"):
        logs.add_partitions(name, 100_001)
    assert not (tmp_path / FILE).exists()


def test_more_partitions_than_kafka_creates_at_once_are_refused(tmp_path, logs):
    for count in (10_001, 1_000_000, 2**40):
        with pytest.raises(UsageError, match=f"{count} partitions are too many to create at once"):
            logs.create("many", count)
    assert not (tmp_path / "logs" / FILE).exists()


def test_unknown_topic_and_partition_name_what_there_is(logs):
    with pytest.raises(UnknownPartitionError, match="no topic 'a': there is none yet"):
        logs.topic("a")
    for number in range(12):
        logs.create(f"t{number:02d}")
    with pytest.raises(UnknownPartitionError, match=r"there are t00, t01, .*, t09, …"):
        logs.append("a", ["x"])
    for call in (
        lambda: logs.partition("t00", 1),
        lambda: logs.read("t00", 1),
        lambda: logs.read("t00", [0, 1]),
        lambda: logs.tail("t00", 1),
        lambda: logs.earliest("t00", 1),
        lambda: logs.delete_records("t00", 1, 0),
    ):
        with pytest.raises(UnknownPartitionError, match="'t00' has no partition 1: there are 0"):
            call()
    with pytest.raises(UsageError, match="no partition of 't00' is named"):
        logs.read("t00", [])


def test_more_partitions_can_be_added(tmp_path, logs):
    first = logs.create("a", 2, retention_ms=5)
    logs.append("a", ["x"], partition=0)
    topic = logs.add_partitions("a", 5)
    assert (topic.partitions, topic.topic_id) == ((0, 1, 2, 3, 4), first.topic_id)
    assert topic.config.retention_ms == 5
    assert logs.add_partitions("a", 3) == topic
    logs.append("a", ["y"], partition=4)
    assert values(logs, "a") == [b"x", b"y"]
    for number in range(5):
        data = (tmp_path / "logs" / f"a-{number}" / "partition.metadata").read_bytes()
        assert decode_partition_metadata(data).topic_id == first.topic_id


def test_partitions_are_added_to_a_topic_of_another_maker(tmp_path):
    with stratalog.open(tmp_path) as logs:
        topic_id = logs.create("a").topic_id
    (tmp_path / FILE).unlink()
    with stratalog.open(tmp_path) as logs:
        assert logs.topic("a").topic_id is None
        assert logs.topic_id("a") == topic_id
        assert logs.add_partitions("a", 2).topic_id == topic_id
    with stratalog.open(tmp_path) as logs:
        assert logs.topic("a").partitions == (0, 1)


def test_topic_created_anew_does_not_inherit_from_its_namesake(tmp_path):
    """A topic whose folders were taken away leaves entries in the checkpoints: a log start at 3 and a
    recovery point at 4 would be wrong for the next one of that name."""
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 3, retention_ms=5)
        logs.append("a", ["1", "2", "3", "4"], partition=0)
        logs.delete_records("a", 0, 3)
    for folder in tmp_path.glob("a-*"):
        shutil.rmtree(folder)
    with stratalog.open(tmp_path) as logs:
        assert logs.topics() == {}
        topic = logs.create("a")
        assert (topic.partitions, topic.config.overrides()) == ((0,), {})
        assert logs.append("a", [("k", "new")])[0].first_offset == 0
        assert (logs.earliest("a"), values(logs, "a")) == (0, [b"new"])
        assert logs.partition("a").recovery_point <= 1


@pytest.mark.parametrize("kind", ["link", "file"])
def test_topic_in_whose_place_there_is_something_is_refused_and_keeps_what_is_said_of_it(
    tmp_path, kind
):
    root, other = tmp_path / "logs", tmp_path / "other"
    with stratalog.open(root) as logs:
        logs.create("a", 1, retention_ms=-1)
        logs.append("a", [str(n) for n in range(10)])
        logs.delete_records("a", 0, 6)
        before = logs.topic("a")
    (root / "a-0").rename(other)
    if kind == "link":
        (root / "a-0").symlink_to(other)
    else:
        (root / "a-0").write_text("")
    with stratalog.open(root) as logs:
        logs.create("b")
        for partitions in (1, 3):
            with pytest.raises(UsageError, match=r"a-0 cannot be created: .*/a-0 exists"):
                logs.create("a", partitions, exist_ok=True)
    (root / "a-0").unlink()
    other.rename(root / "a-0")
    (root / "a-1").write_text("")
    with stratalog.open(root) as logs:
        with pytest.raises(UsageError, match="a-1 cannot be created"):
            logs.add_partitions("a", 2)
        assert logs.topic("a") == before
        assert (logs.earliest("a"), logs.latest("a")) == (6, 10)


def test_folder_that_was_taken_away_is_not_replaced_by_an_empty_one(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 3)
        for number in range(3):
            logs.append("a", [str(number)], partition=number)
    shutil.rmtree(tmp_path / "a-2")
    with stratalog.open(tmp_path) as logs:
        assert logs.topic("a").partitions == (0, 1)
        # Where a key goes cannot be told any more; what names its partition goes on.
        with pytest.raises(UsageError, match="partition 2 is not here"):
            logs.append("a", [("key", "value")])
        logs.append("a", ["no key"])
        logs.append("a", [("key", "value")], partition=1)
        logs.add_partitions("a", 4)
        assert logs.topic("a").partitions == (0, 1, 3)
    assert not (tmp_path / "a-2").exists()


# --- several directories ---------------------------------------------------------------------------


def test_new_partitions_go_to_the_directory_with_fewest(tmp_path):
    roots = [tmp_path / name for name in "abc"]

    def counts() -> list[int]:
        return [len(list(root.glob("*-[0-9]*"))) for root in roots]

    with stratalog.open(roots[0]) as logs:
        logs.create("old", 4)
    with stratalog.open(roots) as logs:
        logs.create("new", 5)
        assert counts() == [4, 3, 2]
        logs.create("more", 4)
        assert counts() == [5, 4, 4]
        logs.add_partitions("new", 7)
        assert counts() == [5, 5, 5]
        logs.append("new", [(str(n), str(n)) for n in range(100)])
        found = sorted(value or b"" for value in values(logs, "new"))
        assert found == sorted(str(n).encode() for n in range(100))
        topics = logs.topics()
    with stratalog.open(reversed(roots)) as logs:  # whichever comes first
        assert logs.topics() == topics
        assert len(values(logs, "new")) == 100
    with stratalog.open(roots[1]) as logs:  # or only one
        assert set(logs.topic("new").partitions) < set(range(7))
        with pytest.raises(UsageError, match="open all log directories"):
            logs.append("new", [("key", "value")])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 50))
def test_directories_are_filled_evenly(counts, partitions):
    chosen = choose_directories(counts, partitions)
    after = [count + chosen.count(number) for number, count in enumerate(counts)]
    filled = [each for number, each in enumerate(after) if number in chosen]
    assert len(chosen) == partitions
    assert not filled or max(filled) <= min(after) + 1


# --- made whole or not at all ----------------------------------------------------------------------


def whole(logs: Logs, file_system: MemoryFileSystem, name: str, partitions: int) -> bool:
    """Whether a topic is there, and if it is, whether it is so with all that belongs to it."""
    if name not in logs.topics():
        return False
    topic = logs.topic(name)
    assert topic.partitions == tuple(range(partitions))
    assert topic.config.retention_ms == 77
    for path in file_system.paths():
        if path.endswith("partition.metadata"):
            data = file_system.read_bytes(path)
            assert decode_partition_metadata(data).topic_id == topic.topic_id
    metas = [path for path in file_system.paths() if path.endswith(".metadata")]
    assert len(metas) == partitions
    return True


@pytest.mark.scaled
@pytest.mark.parametrize("roots", [("/a",), ("/a", "/b"), ("/a", "/b", "/c")], ids=len)
def test_topic_is_whole_wherever_the_power_is_cut(roots, record_property):
    """The power is cut at every step of creating and enlarging a topic, and while that is completed."""

    def scenario(file_system: MemoryFileSystem, facts: Facts[int]) -> None:
        logs = open_memory(file_system, *roots)
        logs.create("t", 3, retention_ms=77)
        facts.note(3)
        logs.append("t", ["x"], partition=2)
        logs.add_partitions("t", 5)
        facts.note(5)
        logs.close()

    def check(file_system: MemoryFileSystem, facts: Facts[int]) -> None:
        least = max(facts, default=0)
        with open_memory(file_system, *roots) as logs:
            there = len(logs.topic("t").partitions) if logs.topics() else 0
            assert there in (0, 3, 5)
            assert there >= least
            assert whole(logs, file_system, "t", there) == bool(there)
            facts.note(there)
            if there:
                logs.append("t", [("key", "value")])  # no partition is missing
        with open_memory(file_system, *roots) as logs:
            assert [each for each in logs.topics() if each != "t"] == []

    done = explore(
        scenario, check, seed=fresh(0), states_per_point=sized(1, 2 * SCALE), depth=sized(1, 2),
        start=lambda: MemoryFileSystem(folders=roots),
    )  # fmt: skip
    record_property("counted: power cuts while a topic was made", done.crashes)
    assert done.points > 40


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_topic_that_cannot_be_made_is_not_there_and_can_be_made_later(fault):
    """Every call of a creation fails once: no half of a topic stays, in this session or the next."""
    number = 0
    while True:
        number += 1
        file_system = memory("/a", "/b")
        faulty = FaultyFileSystem(file_system)
        logs = open_memory(faulty, "/a", "/b")
        faulty.arm(number, fault=fault)
        try:
            logs.create("t", 3, retention_ms=77)
        except StorageError:
            assert logs.topics() == {}
        else:
            assert whole(logs, file_system, "t", 3)
        is_done = not faulty.failed
        faulty.heal()
        if "t" not in logs.topics():
            logs.create("t", 3, retention_ms=77)
        assert whole(logs, file_system, "t", 3)
        logs.close()
        with open_memory(file_system, "/a", "/b") as logs:
            assert whole(logs, file_system, "t", 3)
        if is_done:
            break
    assert number > 20


@pytest.mark.parametrize("call", [Call.MAKE_DIR, Call.SYNC_DIR])
def test_topic_on_a_disk_that_stays_broken_does_not_keep_the_rest_from_being_opened(call):
    file_system = memory("/a")
    faulty = FaultyFileSystem(file_system)
    logs = open_memory(faulty, "/a")
    logs.create("old")
    logs.append("old", ["x"])
    faulty.arm(2, fault=Fault.EIO, sticky=True, calls=[call])
    with pytest.raises(StorageError):
        logs.create("new", 4)
    with pytest.raises(StratalogError):
        logs.create("new", 4)
    faulty.heal()
    logs.close()
    with open_memory(file_system, "/a") as logs:
        assert values(logs, "old") == [b"x"]
        assert "new" not in logs.topics() or logs.topic("new").partitions == (0, 1, 2, 3)
