"""A log rolls: for every reason there is, under the right name, with a snapshot, and readers go across.

``test_roll.py`` tests the decision; here is what becomes of it on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from stratalog.records.layout import INT32_MAX
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.snapshot import decode_snapshot
from stratalog.testing.clock import ManualClock
from tests.storage.logs import (
    SIZE,
    T,
    bases,
    batch,
    crash,
    files,
    name,
    offsets,
    open_log,
    reopen,
    sent,
    small,
    values,
)


def sizes(log: PartitionLog, kind: FileKind) -> list[int]:
    return [Path(segment.path(kind)).stat().st_size for segment in log.segments]


def one(log: PartitionLog, timestamp: int = T, count: int = 1) -> None:
    for _ in range(count):
        log.append(batch(b"eleven byte", timestamp=timestamp))


def test_size(tmp_path: Path) -> None:
    """A segment may be filled to the last byte, and not one further."""
    log = open_log(tmp_path, {"internal.segment.bytes": 3 * SIZE})
    one(log, count=7)
    assert bases(log) == [0, 3, 6]
    assert sizes(log, FileKind.LOG) == [3 * SIZE, 3 * SIZE, SIZE]
    log.close()
    log = open_log(tmp_path / "less", {"internal.segment.bytes": 3 * SIZE - 1})
    one(log, count=5)
    assert bases(log) == [0, 2, 4]
    log.close()


def test_age_by_the_records_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, {"segment.ms": 1000}, clock=clock)
    one(log, T)
    clock.advance(10**9)  # nobody writes: nothing rolls
    one(log, T + 1000)
    assert bases(log) == [0]
    one(log, T + 1001)
    assert bases(log) == [0, 2]
    one(log, T - 5)  # late ones do not
    one(log, T + 2001)
    assert bases(log) == [0, 2]
    one(log, T + 2002)
    assert bases(log) == [0, 2, 5]
    log.close()


def test_age_counts_from_the_first_batch_and_not_from_the_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"segment.ms": 1000})
    log.append(batch(b"a", timestamp=T) + batch(b"b", timestamp=T + 900))
    log.append(batch(b"c", timestamp=T + 1001))
    assert bases(log) == [0, 2]
    log.close()


def test_age_is_known_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"segment.ms": 1000})
    one(log, T)
    one(log, T + 900)
    log = reopen(log)
    one(log, T + 1001)
    assert bases(log) == [0, 2]
    log.close()


def test_age_by_our_clock_where_records_have_none(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, {"segment.ms": 1000}, clock=clock)
    one(log, -1)
    clock.advance(1000)
    one(log, -1)
    assert bases(log) == [0]
    clock.advance(1)
    one(log, -1)
    assert bases(log) == [0, 2]
    log.close()


def test_age_of_an_empty_segment_does_not_count(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, {"segment.ms": 1}, clock=clock)
    clock.advance(10**6)
    one(log, -1)
    assert bases(log) == [0]
    log.close()


def test_what_is_compacted_soon_rolls_soon(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"cleanup.policy": "compact", "max.compaction.lag.ms": 100})
    log.append(batch(b"a", key=b"k", timestamp=T))
    log.append(batch(b"a", key=b"k", timestamp=T + 101))
    assert bases(log) == [0, 1]
    log.close()


def test_jitter_rolls_earlier_and_is_drawn_for_each_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"segment.ms": 1000, "segment.jitter.ms": 1000})
    drawn = set()
    for at in range(20):
        one(log, T + 2000 * at)
        drawn.add(log.segments[-1].jitter_ms)  # type: ignore[attr-defined]
    assert len(log.segments) == 20
    assert all(0 <= jitter < 1000 for jitter in drawn)
    assert len(drawn) > 5
    log.close()


@pytest.mark.parametrize(
    ("index_bytes", "entries"),
    [(67, 4), (64, 4), (24, 1), (12 * 3, 2)],  # the time index keeps one of its slots back
)
def test_a_full_index(tmp_path: Path, index_bytes: int, entries: int) -> None:
    """The first batch has no entry; the one behind the last that fits rolls."""
    configs = {"segment.index.bytes": index_bytes, "index.interval.bytes": 0}
    log = open_log(tmp_path, configs)
    for at in range(3 * (entries + 1)):
        one(log, T + at)
    assert bases(log) == [0, entries + 1, 2 * (entries + 1)]
    log.roll()
    assert sizes(log, FileKind.OFFSET_INDEX)[:3] == [8 * entries] * 3
    assert sizes(log, FileKind.TIME_INDEX)[:3] == [12 * entries] * 3
    log.close()


def test_a_full_offset_index_alone(tmp_path: Path) -> None:
    """Equal times fill the offset index only."""
    log = open_log(tmp_path, {"segment.index.bytes": 64, "index.interval.bytes": 0})
    one(log, T, count=20)
    assert bases(log) == [0, 9, 18]
    assert sizes(log, FileKind.OFFSET_INDEX)[:2] == [64, 64]
    log.close()


@pytest.mark.parametrize("index_bytes", [4, 8, 12])
def test_an_index_without_room_makes_every_batch_a_segment(
    tmp_path: Path, index_bytes: int
) -> None:
    log = open_log(tmp_path, {"segment.index.bytes": index_bytes, "index.interval.bytes": 0})
    for at in range(4):
        one(log, T + at)
    assert bases(log) == [0, 1, 2, 3]
    assert offsets(log) == [0, 1, 2, 3]
    log = reopen(log)
    assert offsets(log) == [0, 1, 2, 3]
    log.close()


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    log = open_log(tmp_path, is_clean=True)
    log.append_as_follower(small(0, timestamp=T))
    log.append_as_follower(small(INT32_MAX - 1, timestamp=T))
    log.append(batch(b"a"))
    assert bases(log) == [0]
    log.append(batch(b"a"))
    assert bases(log) == [0, INT32_MAX + 1]
    log.close()


def test_a_gap_names_the_segment_by_its_first_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"internal.segment.bytes": 2 * SIZE})
    log.append_as_follower(small(0) + small(1))
    log.append_as_follower(small(100))
    assert bases(log) == [0, 100]
    assert offsets(log) == [0, 1, 100]
    assert offsets(log, 2) == [100]
    log = crash(log)
    assert (bases(log), offsets(log)) == ([0, 100], [0, 1, 100])
    log.close()


def test_by_hand(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.roll() is False
    one(log, count=2)
    assert log.roll() is True
    assert log.roll() is False
    one(log)
    assert (bases(log), offsets(log)) == ([0, 2], [0, 1, 2])
    log.close()


def test_a_sealed_segment_is_trimmed_and_the_active_one_is_preallocated(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"segment.index.bytes": 67, "preallocate": True,
                              "internal.segment.bytes": 4096})  # fmt: skip
    one(log, count=3)
    log.roll()
    one(log, T + 5)
    index = {"0.index": 0, "0.timeindex": 12, "0.log": 3 * SIZE, "3.snapshot": 10}
    active = {"3.index": 64, "3.timeindex": 60, "3.log": 4096}
    epochs = {"leader-epoch-checkpoint": 8}
    assert files(tmp_path) == {**index, **active, **epochs}
    log.close()
    closed = {"3.index": 0, "3.timeindex": 12, "3.log": SIZE, "4.snapshot": 10}
    assert files(tmp_path) == {**index, **closed, **epochs}


def test_a_killed_preallocated_log_is_recovered(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"preallocate": True, "internal.segment.bytes": 4096})
    one(log)
    log.roll()
    one(log, count=2)
    log = crash(log)
    assert offsets(log) == [0, 1, 2]
    (cut,) = log.report.cuts
    assert (cut.position, cut.size_bytes, cut.from_offset) == (2 * SIZE, 4096 - 2 * SIZE, 3)
    log.close()


def test_the_snapshot_at_a_roll_is_the_state_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(sent(7, 0, b"a", b"b"))
    log.roll()
    log.append(sent(7, 2, b"c"))
    log.append(sent(8, 0, b"d"))
    log.roll()
    log.append(sent(7, 3, b"e"))
    log.close()

    def producers(offset: int) -> Mapping[int, int]:
        data = (tmp_path / name(offset, ".snapshot")).read_bytes()
        return {entry.producer_id: entry.last_sequence for entry in decode_snapshot(data)}

    assert producers(2) == {7: 1}
    assert producers(4) == {7: 2, 8: 0}
    assert producers(5) == {7: 3, 8: 0}


def test_reads_go_across(tmp_path: Path) -> None:
    """One answer never holds more than one segment, and the next goes on in the next."""
    log = open_log(tmp_path, {"internal.segment.bytes": 3 * SIZE})
    for at in range(10):
        log.append(batch(b"%011d" % at, timestamp=T + at))
    assert [log.read(at).size_bytes for at in range(10)] == [
        size * SIZE for size in (3, 2, 1, 3, 2, 1, 3, 2, 1, 1)
    ]
    for start in range(11):
        assert values(log, start) == [b"%011d" % at for at in range(start, 10)]
    log.close()


# --- onto the disk -------------------------------------------------------------------------------


def test_a_roll_moves_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    one(log, count=3)
    assert (log.recovery_point, log.synced_offset) == (0, 0)
    log.roll()
    assert (log.recovery_point, log.synced_offset) == (3, 3)
    one(log)
    assert (log.recovery_point, log.synced_offset) == (3, 3)
    assert log.sync() == 4
    assert (log.recovery_point, log.synced_offset) == (3, 4)  # the indexes are not synced
    assert log.flush() == 4
    one(log)
    log.close()
    assert log.recovery_point == 5


def test_flush_messages(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"flush.messages": 3})
    points = []
    for _ in range(7):
        one(log)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]
    log.append(batch(b"a", b"b", b"c", b"d"))
    assert log.recovery_point == 11
    log.append_as_follower(small(11) + small(12) + small(13))
    assert log.recovery_point == 14
    log.close()


def test_new_configs_count_from_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    one(log, count=3)
    log.reconfigure(type(log.config).of({"internal.segment.bytes": SIZE}))
    one(log, count=2)
    assert bases(log) == [0, 3, 4]
    log.close()
