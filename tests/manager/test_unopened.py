"""Retention of a partition that is not open: it is opened only if that may delete something."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from stratalog.manager.unopened import may_retain
from stratalog.storage.log.retention import BreachedStart, SizeLimit, TimeLimit, policies_for
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind, segment_file_name
from stratalog.testing import MemoryFileSystem
from tests.manager.logdirs import ROOT, memory, open_memory

FOLDER = f"{ROOT}/t-0"
HOUR_MS = 3_600_000


def written(disk: MemoryFileSystem, ages_ms: list[int], *, is_closed: bool = True) -> None:
    """A partition with a segment for each record; the first ages are those of the oldest segments."""
    logs = open_memory(disk)
    logs.create(
        "t",
        internal_segment_bytes=200,
        message_timestamp_after_max_ms=2**62,
        index_interval_bytes=0,
    )
    now_ms = disk.clock.now_ms()
    for age_ms in ages_ms:
        logs.append("t", [{"value": b"v" * 60, "timestamp": now_ms - age_ms}])
    if is_closed:
        logs.close()


def may_delete_by_age(disk: MemoryFileSystem, limit_ms: int) -> bool:
    now_ms = disk.clock.now_ms()
    return may_retain(disk, FOLDER, (TimeLimit(limit_ms, now_ms),), now_ms)


def test_young_partition_need_not_be_opened():
    disk = memory()
    written(disk, [HOUR_MS, 0])
    assert not may_delete_by_age(disk, HOUR_MS)
    assert may_delete_by_age(disk, HOUR_MS - 1)


def test_partition_whose_time_index_is_missing_must_be_opened():
    disk = memory()
    written(disk, [HOUR_MS, 0])
    disk.unlink(f"{FOLDER}/{segment_file_name(0, FileKind.TIME_INDEX)}")
    assert may_delete_by_age(disk, 2 * HOUR_MS)


def test_time_in_the_future_is_not_believed():
    disk = memory()
    written(disk, [-HOUR_MS, 0])
    assert may_delete_by_age(disk, HOUR_MS)


def test_size_of_all_segments_counts():
    disk = memory()
    written(disk, [0, 0, 0])
    (size,) = {
        len(disk.read_bytes(f"{FOLDER}/{segment_file_name(n, FileKind.LOG)}")) for n in range(3)
    }
    assert may_retain(disk, FOLDER, (SizeLimit(2 * size),), disk.clock.now_ms())
    assert not may_retain(disk, FOLDER, (SizeLimit(2 * size + 1),), disk.clock.now_ms())


def test_segment_below_the_log_start_counts():
    disk = memory()
    written(disk, [0, 0])
    assert may_retain(disk, FOLDER, (BreachedStart(1),), disk.clock.now_ms())
    assert not may_retain(disk, FOLDER, (BreachedStart(0),), disk.clock.now_ms())


def test_empty_partition_need_not_be_opened():
    disk = memory()
    written(disk, [])
    assert not may_delete_by_age(disk, 0)
    with open_memory(disk) as logs:
        logs.partition("t")  # creates the first, empty segment
    assert not may_delete_by_age(disk, 0)


@given(
    st.lists(st.integers(-2, 20), max_size=5),
    st.integers(-1, 20),
    st.integers(-1, 600),
    st.integers(0, 5),
    st.sampled_from(["delete", "compact", "compact,delete", ""]),
    st.booleans(),
)
@example([5, -2, 0], 3, -1, 0, "delete", True)
def test_what_is_not_opened_has_nothing_to_delete(
    ages, retention_ms, retention_bytes, log_start, policy, is_closed
):
    disk = memory()
    written(disk, ages, is_closed=is_closed)
    disk = disk if is_closed else disk.fork()  # as a process that died leaves it
    config = LogConfig.of(
        retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy
    )
    now_ms = disk.clock.now_ms()
    policies = policies_for(config, now_ms, log_start)
    if not may_retain(disk, FOLDER, policies, now_ms):
        with open_memory(disk) as logs:
            assert logs.partition("t").plan_retention(policies).deletions == ()
