"""Cutting a log: from its end (truncate), wholly (restart) and from its beginning (advance_start)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.errors import OffsetOutOfRangeError, UsageError
from stratalog.records.control import ControlType
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.views.log_view import Isolation
from tests.storage.logs import (
    SIZE,
    T,
    bases,
    batch,
    crash,
    end_txn,
    epoch_text,
    files,
    in_txn,
    log_bytes,
    offsets,
    open_log,
    records,
    reopen,
    sent,
    small,
    values,
)


def filled(folder: Path, count: int = 15, **configs: object) -> PartitionLog:
    """Batches of one record, five a segment; a new leader epoch every four."""
    log = open_log(
        folder, {"internal.segment.bytes": 5 * SIZE, "index.interval.bytes": 0, **configs}
    )
    for at in range(count):
        log.append(batch(b"%011d" % at, timestamp=T + at), leader_epoch=at // 4)
    return log


@pytest.mark.parametrize("offset", range(15))
def test_the_log_ends_where_it_was_cut(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path)
    whole = log_bytes(log)
    log.advance_high_watermark(9)
    log.flush()
    assert log.truncate(offset) is True
    assert (log.log_end, log.high_watermark) == (offset, min(offset, 9))
    assert (log.recovery_point, log.synced_offset) == (offset, offset)
    assert log_bytes(log) == whole[: offset * SIZE]
    assert offsets(log) == list(range(offset))
    assert log.epochs == tuple((at // 4, at) for at in range(0, offset, 4))
    # What is appended next follows, and all of it is found again.
    for at in range(7):
        assert (
            log.append(batch(b"new %7d" % at, timestamp=T + 100 + at)).first_offset == offset + at
        )
    want = [b"%011d" % at for at in range(offset)] + [b"new %7d" % at for at in range(7)]
    assert values(log) == want
    for again in (reopen, crash):
        log = again(log)
        assert values(log) == want
        found = log.offset_for_time(T + 103)
        assert found is not None
        assert found.offset == offset + 3
    log.close()


def test_whole_batches_go(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        log.append(batch(b"a", b"b", b"c"))
    log.truncate(7)
    # The batch that holds 7 went; the end is 7 nevertheless, as in Kafka.
    assert (log.log_end, offsets(log)) == (7, [0, 1, 2, 3, 4, 5])
    assert log.read(6).region is None
    assert log.append(batch(b"d")).first_offset == 7
    assert offsets(log) == [0, 1, 2, 3, 4, 5, 7]
    log.close()


def test_nothing_to_cut(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.assign_epoch(9)
    assert log.epochs[-1] == (9, 15)
    assert log.truncate(15) is False
    assert log.epochs[-1] == (3, 12)  # it wrote nothing
    assert log.truncate(99) is False
    assert log.log_end == 15
    with pytest.raises(UsageError):
        log.truncate(-1)
    log.close()


def test_segments_behind_the_cut_are_set_aside_and_removed_later(tmp_path: Path) -> None:
    log = filled(tmp_path)
    region = log.read(12).region
    assert region is not None
    held = bytes(region.read())
    log.truncate(3)
    assert bases(log) == [0]
    there = files(tmp_path)
    assert {
        f"{base}.{kind}.deleted" for base in (5, 10) for kind in ("log", "index", "timeindex")
    } <= set(there)
    assert there["0.index"] == 10485760  # active again
    assert bytes(region.read()) == held
    assert log.remove_due() == 0
    log._state.clock.advance(60_000)  # type: ignore[attr-defined]
    assert log.remove_due() == 8  # with the snapshots of both
    assert not list(tmp_path.glob("*.deleted"))
    log.close()


def test_below_the_first_segment_everything_goes(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start=50)
    log.append(sent(7, 0, b"a"), leader_epoch=2)
    assert log.truncate(20) is True
    assert (bases(log), log.log_start, log.log_end, log.high_watermark) == ([20], 20, 20, 20)
    assert (log.epochs, log.producers) == ((), [])
    log.append(batch(b"b"))
    assert offsets(log) == [20]
    log.close()


def test_a_cut_below_the_start_moves_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_high_watermark(15)
    log.advance_start(8)
    log.truncate(6)
    assert (log.log_start, log.log_end, log.high_watermark) == (6, 6, 6)
    log.append(batch(b"next"))
    assert values(log) == [b"next"]
    log.close()


def test_producers_are_those_of_what_is_left(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(sent(7, 0, b"a"))
    log.append(sent(7, 1, b"b"))
    log.roll()
    log.append(sent(7, 2, b"c"))
    log.append(sent(8, 0, b"d"))
    log.truncate(3)
    assert {entry.producer_id: entry.last_sequence for entry in log.producers} == {7: 2}
    assert log.append(sent(7, 2, b"c")).is_duplicate
    log.truncate(1)
    assert {entry.producer_id: entry.last_sequence for entry in log.producers} == {7: 0}
    log.append(sent(7, 1, b"b again"))
    assert values(log) == [b"a", b"b again"]
    log = crash(log)
    assert {entry.producer_id: entry.last_sequence for entry in log.producers} == {7: 1}
    log.close()


def test_a_transaction_whose_marker_was_cut_is_open_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(in_txn(1, 0, b"a"))
    log.append(batch(b"b"))
    end_txn(log, ControlType.ABORT, 1)
    log.append(batch(b"c"))
    assert log.last_stable_offset == 4
    log.truncate(2)
    assert (log.last_stable_offset, log.segments[0].aborted) == (0, ())
    end_txn(log, ControlType.COMMIT, 1)
    assert values(log, 0, Isolation.COMMITTED) == [b"a", b"b"]
    for again in (reopen, crash):
        log = again(log, watermark=Watermark.WRITTEN)
        assert log.segments[0].aborted == ()
        assert values(log, 0, Isolation.COMMITTED) == [b"a", b"b"]
    log.close()


def test_the_transaction_index_is_cut_in_its_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    for at in range(3):
        log.append(in_txn(1, at, b"a"))
        end_txn(log, ControlType.ABORT, 1)
    log.flush()
    assert files(tmp_path)["0.txnindex"] == 3 * 34
    log.truncate(3)
    assert files(tmp_path)["0.txnindex"] == 34
    log.append(in_txn(1, 2, b"a"))
    end_txn(log, ControlType.ABORT, 1)
    log.close()
    assert files(tmp_path)["0.txnindex"] == 2 * 34
    log = reopen(log)
    assert [txn.last_offset for txn in log.segments[0].aborted] == [1, 4]
    log.close()


def test_indexes_after_a_cut_are_those_of_the_rest(tmp_path: Path) -> None:
    """No entry of what is gone is left in the files, not even behind a second crash."""
    rng = random.Random(5)
    log = filled(tmp_path, 0)
    for _ in range(40):
        end = log.log_end
        for _ in range(rng.randint(1, 8)):
            log.append(batch(b"x" * rng.randint(1, 40), timestamp=T + rng.randint(0, 500)))
        if rng.random() < 0.3:
            log.flush()
        log.truncate(rng.randint(max(end - 5, 0), log.log_end))
    data = log_bytes(log)
    log.close()
    assert all(path.stat().st_size % 8 == 0 for path in tmp_path.glob("*.index"))
    log = reopen(log)
    assert log.report.recovered_segments == []
    assert log_bytes(log) == data
    for time in sorted({record.timestamp for record in records(log)}):
        found = log.offset_for_time(time)
        assert found is not None
        assert found.timestamp >= time
    log.close()


# --- restart -------------------------------------------------------------------------------------


def test_restart_throws_everything_away(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.append(sent(7, 0, b"a"))
    log.advance_high_watermark(16)
    log.restart(100)
    assert (bases(log), log.log_start, log.log_end) == ([100], 100, 100)
    assert (log.high_watermark, log.last_stable_offset) == (100, 100)
    assert (log.epochs, log.producers) == ((), [])
    assert epoch_text(tmp_path) == "0\n0\n"
    assert "100.log" in files(tmp_path)
    log.append_as_follower(small(100) + small(101))
    log = crash(log)
    assert (log.log_start, offsets(log)) == (100, [100, 101])
    log.close()


def test_restart_at_the_same_place(tmp_path: Path) -> None:
    """The new segment has the name of the old one: that one is emptied, so that there always is one."""
    log = filled(tmp_path, 3)
    log.restart(0)
    assert offsets(log) == []
    log.append(batch(b"new"))
    assert values(log) == [b"new"]
    log.close()
    assert not list(tmp_path.glob("*.deleted"))
    log = reopen(log)
    assert values(log) == [b"new"]
    log.close()


def test_restart_inside_of_a_batch(tmp_path: Path) -> None:
    """A follower of a log whose start lies inside of a batch gets that batch whole (part 4.4)."""
    log = open_log(tmp_path, log_start=2)
    data = batch(b"a", b"b", b"c", b"d", leader_epoch=0)
    log.restart(0, log_start=2)
    log.append_as_follower(data)
    assert (log.log_start, log.log_end, offsets(log)) == (2, 4, [2, 3])
    with pytest.raises(UsageError):
        log.restart(-1)
    log.close()


# --- the start -----------------------------------------------------------------------------------


def test_the_start_moves_inside_of_segments_and_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a", b"b", b"c"), leader_epoch=1)
    log.append(batch(b"d"), leader_epoch=5)
    log.advance_high_watermark(4)
    assert log.advance_start(2) is True
    assert log.advance_start(1) is False
    assert (log.log_start, offsets(log), log.epochs) == (2, [2, 3], ((1, 2), (5, 3)))
    log = reopen(log)
    assert (log.log_start, offsets(log)) == (2, [2, 3])
    log.advance_high_watermark(4)
    log.advance_start(4)
    assert (offsets(log), log.epochs) == ([], ((5, 4),))
    log.append(batch(b"e"))
    assert offsets(log) == [4]
    log.close()


def test_the_start_may_not_pass_what_readers_may_see(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_high_watermark(6)
    for offset in (7, 15, 16, -1):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.advance_start(offset)
        assert (caught.value.start, caught.value.end) == (0, 6)
    assert log.advance_start(6) is True
    assert log.log_start == 6
    log.close()


def test_segments_wholly_below_the_start_go_with_the_next_retention(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_high_watermark(15)
    log.advance_start(9)
    assert bases(log) == [0, 5, 10]
    plan = log.retain()
    assert [(each.base_offset, each.policy) for each in plan.deletions] == [(0, "log-start")]
    assert (bases(log), log.log_start) == ([5, 10], 9)
    log.advance_start(15)
    assert bases(log) == [5, 10]
    log.retain()
    assert (bases(log), log.log_start, offsets(log)) == ([10], 15, [])
    log.close()
