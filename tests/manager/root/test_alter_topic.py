"""Topics that exist: other configs, and creating one that is there already."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.manager.logs import Logs
from stratalog.manager.root.topic_configs import altered_config
from stratalog.manager.root.topic_file import Topic, TopicEntry
from stratalog.storage.formats.kafka_uuid import format_uuid
from stratalog.storage.log_config import LogConfig
from stratalog.testing import (
    Facts,
    Fault,
    FaultyFileSystem,
    ManualClock,
    MemoryFileSystem,
    explore,
)
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.scale import fresh

TWO = ("/a", "/b")


# --- configs -----------------------------------------------------------------------------------------


def test_configs_are_changed_added_and_reset():
    before = LogConfig.of({"retention.ms": 5, "segment.ms": 6, "flush.ms": 7})
    after = altered_config(
        before, {"retention_ms": 50, "segment.ms": None, "max.message.bytes": "100"}
    )
    assert after.overrides() == {
        "retention.ms": "50",
        "flush.ms": "7",
        "max.message.bytes": "100",
    }
    assert altered_config(after, dict.fromkeys(after.overrides())) == LogConfig()
    assert altered_config(before, {}) == before


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"retention.msx": 5}, "'retention.msx' is not a topic config; did you mean"),
        ({"retention.msx": None}, "'retention.msx' is not a topic config; did you mean"),
        ({"retention.ms": "soon"}, "retention.ms: 'soon' is not"),
        ({"retention.ms": 5, "retention_ms": 6}, "retention.ms is given twice"),
        ({"retention.ms": None, "retention_ms": 6}, "retention.ms is given twice"),
        ({"min.compaction.lag.ms": 6}, "is above max.compaction.lag.ms"),
    ],
)
def test_a_wrong_name_or_value_changes_nothing(changes, problem):
    disk = memory()
    with open_memory(disk) as logs:
        before = logs.create("t", max_compaction_lag_ms=5)
        with pytest.raises(UsageError, match=problem):
            logs.alter_configs("t", changes)
        assert logs.topic("t") == before
        with pytest.raises(UnknownPartitionError):
            logs.alter_configs("nothing", {})


def test_open_logs_and_the_next_session_have_the_new_configs():
    disk = memory()
    with open_memory(disk) as logs:
        logs.create("t", 2, retention_ms=5)
        opened = logs.partition("t", 0)
        altered = logs.alter_configs("t", {"retention.ms": None, "segment.ms": 77})
        assert altered == logs.topic("t")
        assert altered.config.overrides() == {"segment.ms": "77"}
        assert altered.partitions == (0, 1)
        assert opened.config == logs.partition("t", 1).config == altered.config
    with open_memory(disk) as logs:
        assert logs.topic("t") == altered
        assert logs.partition("t", 0).config == altered.config


def test_a_smaller_size_limit_holds_for_the_next_append():
    with open_memory(memory()) as logs:
        logs.create("t")
        logs.append("t", [b"v" * 1000])
        logs.alter_configs("t", {"max.message.bytes": 500})
        with pytest.raises(ValueError, match=r"max\.message\.bytes"):
            logs.append("t", [b"v" * 1000])
        logs.alter_configs("t", {"max.message.bytes": None})
        logs.append("t", [b"v" * 1000])


def test_flushes_follow_flush_ms():
    disk = memory()
    clock = disk.clock
    assert isinstance(clock, ManualClock)
    with open_memory(disk, sync=False) as logs:
        logs.create("t")
        logs.append("t", [b"a"])
        log = logs.partition("t")
        clock.advance(10_000)
        assert logs.run_due_jobs() == []
        logs.alter_configs("t", {"flush.ms": 100})
        clock.advance(100)
        assert logs.run_due_jobs() == ["flush"]
        assert log.recovery_point == 1
        logs.alter_configs("t", {"flush.ms": None})
        logs.append("t", [b"b"])
        clock.advance(10_000)
        logs.run_due_jobs()  # the one that was planned
        assert log.recovery_point == 1
        assert [job.next_due_ms for job in logs.jobs if job.name == "flush"] == [None]


def test_a_topic_that_kafka_made_keeps_its_id():
    disk = memory()
    with open_memory(disk) as logs:
        logs.create("t", 2)
        topic_id = logs.topic_id("t")
    disk.unlink(f"{ROOT}/stratalog-topics.json")
    with open_memory(disk) as logs:
        assert logs.topic("t").topic_id is None
        altered = logs.alter_configs("t", {"retention.ms": 5})
        assert altered.topic_id == topic_id
        assert altered.partitions == (0, 1)


def settings(logs: Logs) -> tuple[int, int]:
    config = logs.topic("t").config
    return config.retention_ms, config.segment_ms


@pytest.mark.parametrize("order", [TWO, TWO[::-1]])
def test_after_a_power_cut_all_directories_have_the_old_configs_or_the_new(order):
    def scenario(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        with open_memory(disk, *TWO) as logs:
            logs.create("t", 3, retention_ms=1, segment_ms=1)
            facts.note("created")
            logs.alter_configs("t", {"retention.ms": 2, "segment.ms": 2})
            facts.note("altered")

    def check(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        if not facts:
            return
        with open_memory(disk, *order) as logs:
            seen = settings(logs)
            assert seen in ([(2, 2)] if "altered" in facts else [(1, 1), (2, 2)])
            assert logs.topic("t").partitions == (0, 1, 2)
        if order == TWO:
            for root in TWO:
                with open_memory(disk, root, read_only=True) as logs:
                    assert settings(logs) == seen

    explore(scenario, check, seed=fresh(0), start=lambda: MemoryFileSystem(folders=TWO))


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_configs_that_cannot_be_written_are_not_applied(fault):
    disk = memory()
    files = FaultyFileSystem(disk)
    with open_memory(files) as logs:
        logs.create("t", retention_ms=1)
        log = logs.partition("t")
        files.arm(1, fault=fault)
        with pytest.raises(OSError, match="stratalog-topics"):
            logs.alter_configs("t", {"retention.ms": 2})
        files.heal()
        assert log.config.retention_ms == logs.topic("t").config.retention_ms == 1


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.MEMORY, Fault.INTERRUPT])
def test_an_error_says_if_the_next_session_may_have_the_new_configs(fault):
    noted = 0
    for number in range(1, 99):
        disk = memory(*TWO)
        files = FaultyFileSystem(disk)
        logs = open_memory(files, *TWO)
        logs.create("t", 2, retention_ms=1)
        files.arm(number, fault=fault)
        notes: list[str] = []
        with suppress(OSError, MemoryError, KeyboardInterrupt):
            try:
                logs.alter_configs("t", {"retention.ms": 2})
            except BaseException as error:
                notes = getattr(error, "__notes__", [])
                raise
        is_done = not files.failed
        files.heal()
        shown = logs.topic("t").config
        logs.close()
        with open_memory(disk, *TWO) as logs:
            assert logs.topic("t").config == shown or "may have the new ones" in notes[0]
        noted += bool(notes)
        if is_done:
            break
    assert is_done
    assert 0 < noted < number // 2


@pytest.mark.parametrize("root", TWO)
def test_configs_are_not_altered_without_one_of_the_directories(root):
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        before = logs.create("t", 2)
    with (
        open_memory(disk, root) as logs,
        pytest.raises(UsageError, match=r"'t' cannot be altered: .* lack partitions [01]; open"),
    ):
        logs.alter_configs("t", {"retention.ms": 5})
    with open_memory(disk, *TWO) as logs:
        assert logs.topic("t") == before


def test_partitions_that_were_being_created_are_created_whatever_happens_in_between():
    """A process dies after the first of two files; then only that directory is open."""
    disk = memory(*TWO)
    with open_memory(disk, *TWO):
        pass
    logs = open_memory(disk, *TWO)
    ids = [format_uuid(each.directory_id or b"") for each in logs._directories]
    plan = {ids[0]: (0,), ids[1]: (1,)}
    logs._catalogue._files[0].put(TopicEntry(Topic("t", bytes(range(16)), (0,)), plan))
    logs._partitions.abandon()
    for directory in logs._directories:
        directory.release()
    with open_memory(disk, "/a") as logs:
        assert logs.topic("t").partitions == (0,)
        with pytest.raises(UsageError, match="lack partitions 1;"):
            logs.alter_configs("t", {"retention.ms": 5})
        assert logs.add_partitions("t", 3).partitions == (0, 2)
    with open_memory(disk, *TWO) as logs:
        assert logs.topic("t").partitions == (0, 1, 2)
        assert all(file.entries["t"].plan is None for file in logs._catalogue._files)
        assert [file.entries["t"].total_partitions for file in logs._catalogue._files] == [3, 3]


# --- creating what is there ----------------------------------------------------------------------------


def test_exist_ok_returns_the_topic_that_is_there():
    with open_memory(memory()) as logs:
        created = logs.create("t", 3, retention_ms=5, exist_ok=True)
        assert created.partitions == (0, 1, 2)
        same = [
            logs.create("t", exist_ok=True),
            logs.create("t", 3, exist_ok=True),
            logs.create("t", 3, {"retention.ms": "5"}, exist_ok=True),
            logs.create("t", exist_ok=True, segment_bytes=1 << 30),  # the default
        ]
        assert same == [created] * 4
        with pytest.raises(UsageError, match="there already"):
            logs.create("t", 3, retention_ms=5)


@pytest.mark.parametrize("partitions", [2.0, "2", True, b"2"])
def test_exist_ok_with_a_number_of_partitions_that_is_none_is_refused(partitions):
    with open_memory(memory()) as logs:
        for _ in range(2):
            with pytest.raises(UsageError, match="a topic has at least one partition, not"):
                logs.create("t", partitions, exist_ok=True)
            logs.create("t", 2, exist_ok=True)


@pytest.mark.parametrize(
    ("partitions", "configs", "problem"),
    [
        (2, {}, "it has 3 partitions, not 2$"),
        (None, {"retention.ms": 6}, "retention.ms is 5, not 6$"),
        (None, {"segment.ms": 6}, "segment.ms is 604800000, not 6$"),
        (
            4,
            {"retention.ms": 6, "cleanup.policy": "compact"},
            "it has 3 partitions, not 4; cleanup.policy is delete, not compact; retention.ms is 5, not 6$",
        ),
    ],
)
def test_exist_ok_names_what_differs(partitions, configs, problem):
    with open_memory(memory()) as logs:
        before = logs.create("t", 3, retention_ms=5)
        with pytest.raises(UsageError, match=f"topic 't' exists, and differs: {problem}"):
            logs.create("t", partitions, configs, exist_ok=True)
        assert logs.topic("t") == before


def test_exist_ok_counts_partitions_of_directories_that_are_not_open():
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        logs.create("t", 3)
    with open_memory(disk, "/a") as logs:
        assert logs.create("t", 3, exist_ok=True).partitions == (0, 2)
        with pytest.raises(UsageError, match="it has 3 partitions, not 2"):
            logs.create("t", 2, exist_ok=True)
