"""Reads: every consequence that part 5.2 of the facts lists, isolation, aborted transactions, waiting, and
readers beside a writer.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.errors import LimitExceededError, OffsetOutOfRangeError, StorageError
from stratalog.records.builder import empty_batch
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType
from stratalog.records.scan import scan_batches
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.views.log_view import Isolation
from tests.storage.logs import (
    SIZE,
    T,
    batch,
    end_txn,
    headers,
    in_txn,
    offsets,
    open_log,
    records,
    reopen,
    small,
    values,
)

HIGH, STABLE = Isolation.UNCOMMITTED, Isolation.COMMITTED


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    """Twelve batches of two records, four batches a segment."""
    data = batch(b"one", b"two")
    made = open_log(tmp_path, {"internal.segment.bytes": 4 * len(data), "index.interval.bytes": 0})
    for at in range(12):
        made.append(batch(b"one", b"two", timestamp=T + at))
    yield made
    made.close()


def place(log: PartitionLog, offset: int, *how: object, **named: object) -> tuple[int, int] | None:
    """Where a read begins, and its size."""
    answer = log.read(offset, *how, **named)  # type: ignore[arg-type]
    if answer.region is None:
        return None
    (first, *_) = scan_batches(bytes(answer.region.read()))
    return first.base_offset, answer.region.size_bytes


def test_a_read_starts_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    one = log.size_bytes // 12
    for offset in range(24):
        first = offset // 2 * 2
        assert place(log, offset) == (first, (4 - first // 2 % 4) * one)


def test_a_read_may_end_inside_a_batch_and_never_goes_on_in_the_next_segment(
    log: PartitionLog,
) -> None:
    one = log.size_bytes // 12
    assert place(log, 0, one + 10) == (0, one + 10)
    assert place(log, 0, 10**9) == (0, 4 * one)
    assert place(log, 7, 10**9) == (6, one)
    assert place(log, 8, 10**9) == (8, 4 * one)


def test_the_first_batch_comes_whole_when_asked_for(log: PartitionLog) -> None:
    one = log.size_bytes // 12
    for size in (0, 1, one - 1, one):
        assert place(log, 3, size) == (2, one)
    assert log.read(3, 0, at_least_one=False).region is None
    part = log.read(3, 10, at_least_one=False).region
    assert part is not None
    assert part.size_bytes == 10


def test_a_batch_above_the_configured_maximum_is_an_error(log: PartitionLog) -> None:
    one = log.size_bytes // 12
    assert place(log, 0, 10, max_batch_bytes=one) == (0, one)
    with pytest.raises(LimitExceededError) as caught:
        log.read(2, 10, max_batch_bytes=one - 1)
    assert (caught.value.position, caught.value.reason) == (one, "batch_size")


def test_outside_of_the_log_is_an_error_that_tells_the_range(log: PartitionLog) -> None:
    log.advance_high_watermark(24)
    log.advance_start(5)
    for offset in (-1, 0, 4, 25, 10**15):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset)
        error = caught.value
        assert (error.offset, error.start, error.end) == (offset, 5, 24)
    # Inside of a batch the start may lie: then the batch comes whole, and the reader drops.
    assert place(log, 5) is not None
    assert offsets(log)[0] == 5


def test_at_the_end_there_is_nothing_and_no_error(log: PartitionLog) -> None:
    for isolation in Isolation:
        answer = log.read(24, isolation=isolation)
        assert (answer.region, answer.size_bytes, answer.start_offset) == (None, 0, 24)
    assert (answer.high_watermark, answer.last_stable_offset) == (0, 0)
    assert (answer.log_start, answer.log_end) == (0, 24)


def test_between_the_bound_and_the_end_there_is_nothing_and_no_error(log: PartitionLog) -> None:
    log.advance_high_watermark(10)
    assert [place(log, at, isolation=HIGH) is None for at in (9, 10, 11, 23, 24)] == [
        False, True, True, True, True,
    ]  # fmt: skip


def test_a_bound_inside_a_batch_withholds_all_of_it(log: PartitionLog) -> None:
    one = log.size_bytes // 12
    for high_watermark, size in (
        (1, 0),
        (2, one),
        (3, one),
        (4, 2 * one),
        (7, 3 * one),
        (8, 4 * one),
    ):
        log.advance_high_watermark(high_watermark)
        assert log.read(0, isolation=HIGH).size_bytes == size
    log.advance_high_watermark(9)
    assert log.read(0, isolation=HIGH).size_bytes == 4 * one
    assert log.read(8, isolation=HIGH).region is None
    log.advance_high_watermark(11)
    assert log.read(8, isolation=HIGH).size_bytes == one


def test_the_bound_inside_the_log_start_batch(log: PartitionLog) -> None:
    log.advance_high_watermark(5)
    log.advance_start(5)
    assert (log.log_start, log.high_watermark) == (5, 5)
    assert log.read(5, isolation=HIGH).region is None


def test_what_was_compacted_away_is_answered_by_what_follows(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"internal.segment.bytes": 3 * SIZE})
    log.append_as_follower(small(0) + small(4))
    (header,) = headers(batch(b"a", b"b", b"c", base_offset=6))
    log.append_as_follower(empty_batch(header))  # emptied, and still there
    log.append_as_follower(small(20) + small(21))
    assert [place(log, at) for at in (1, 4)] == [(4, SIZE + 61), (4, SIZE + 61)]
    assert [place(log, at) for at in (5, 8)] == [(6, 61), (6, 61)]
    assert [place(log, at) for at in (9, 20)] == [(20, 2 * SIZE), (20, 2 * SIZE)]
    assert offsets(log) == [0, 4, 20, 21]
    # A bound that lies in a hole.
    log.advance_high_watermark(15)
    assert log.read(10, isolation=HIGH).region is None
    assert log.read(9, isolation=HIGH).region is None
    assert log.view.bytes_behind(10, HIGH) == 0
    assert log.view.bytes_behind(6, HIGH) == 61
    log.close()


def test_an_empty_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start=7)
    for isolation in Isolation:
        assert log.read(7, isolation=isolation).region is None
    for offset in (6, 8):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset)
    log.close()


# --- transactions --------------------------------------------------------------------------------


def test_aborted_transactions_come_with_what_they_touch(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"index.interval.bytes": 0}, watermark=Watermark.WRITTEN)
    sequence = 0
    for number in range(8):  # offsets 0-3, 4-7 …: a record outside, two inside, a marker
        log.append(batch(b"plain %d" % number))
        log.append(in_txn(1, sequence, b"a", b"b"))
        sequence += 2
        end_txn(log, ControlType.ABORT if number % 2 else ControlType.COMMIT, 1)
    firsts = [txn.first_offset for txn in log.read(0, isolation=STABLE).aborted or ()]
    assert firsts == [5, 13, 21, 29]
    one = log.read(4, 1, STABLE)
    assert [txn.first_offset for txn in one.aborted or ()] in ([], [5])
    assert [txn.first_offset for txn in log.read(9, 1, STABLE).aborted or ()] == []
    assert [txn.first_offset for txn in log.read(6, 1, STABLE).aborted or ()] == [5]
    assert [txn.first_offset for txn in log.read(14, 200, STABLE).aborted or ()] == [13]
    assert log.read(0, isolation=HIGH).aborted is None
    assert log.read(32, isolation=STABLE).aborted == ()
    for size in (1, 100, 300, 10**6):
        kept = [record.value for record in records(log, 0, STABLE, size)]
        assert [value for value in kept if value and value.startswith(b"plain")] == [
            b"plain %d" % number for number in range(8)
        ]
        assert len(kept) == 8 + 4 * 2
    log.close()


def test_a_marker_may_lie_segments_behind_its_transaction(tmp_path: Path) -> None:
    """The index entry is in the segment of the marker; a reader of the first one must know of it."""
    log = open_log(tmp_path, {"internal.segment.bytes": 200}, watermark=Watermark.WRITTEN)
    log.append(in_txn(1, 0, b"doomed"))
    for at in range(12):
        log.append(batch(b"%d" % at))
    assert log.last_stable_offset == 0
    assert log.read(0, isolation=STABLE).region is None
    end_txn(log, ControlType.ABORT, 1)
    assert len(log.segments) > 4
    assert log.last_stable_offset == log.log_end
    assert log.read(0, isolation=STABLE).aborted == ((1, 0, 13, 14),)
    assert values(log, 0, STABLE) == [b"%d" % at for at in range(12)]
    log = reopen(log, watermark=Watermark.WRITTEN)
    assert values(log, 0, STABLE) == [b"%d" % at for at in range(12)]
    log.close()


def test_an_open_transaction_holds_back_whole_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(batch(b"a"))
    log.append(in_txn(1, 0, b"b"))
    log.append(batch(b"c"))
    assert values(log, 0, HIGH) == [b"a", b"b", b"c"]
    assert values(log, 0, STABLE) == [b"a"]
    log = reopen(log, watermark=Watermark.WRITTEN)
    assert (log.last_stable_offset, values(log, 0, STABLE)) == (1, [b"a"])
    end_txn(log, ControlType.COMMIT, 1)
    assert values(log, 0, STABLE) == [b"a", b"b", b"c"]
    log.close()


def test_a_start_inside_a_transaction_is_as_far_back_as_readers_wait(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(in_txn(1, 0, b"a", b"b"))
    log.append(batch(b"c"))
    log.advance_start(1)
    assert (log.log_start, log.last_stable_offset) == (1, 1)
    log.append(batch(b"d"))
    assert log.last_stable_offset == 1
    end_txn(log, ControlType.ABORT, 1)
    assert values(log, 1, STABLE) == [b"c", b"d"]
    log.close()


def test_the_high_watermark_only_goes_forward_and_not_beyond_the_end(log: PartitionLog) -> None:
    assert log.advance_high_watermark(6) == 6
    assert log.advance_high_watermark(4) == 6
    assert log.advance_high_watermark(1000) == 24
    again = reopen(log, high_watermark=7)
    assert again.high_watermark == 7
    again.close()
    again = reopen(again, high_watermark=10**6)
    assert again.high_watermark == 24
    again.close()


def test_a_watermark_moves_with_writes_or_syncs(tmp_path: Path) -> None:
    written = open_log(tmp_path / "written", watermark="written")
    written.append(batch(b"a"))
    assert written.high_watermark == 1
    synced = open_log(tmp_path / "synced", watermark="synced")
    synced.append(batch(b"a"))
    assert synced.high_watermark == 0
    assert synced.read(0, isolation=HIGH).region is None
    synced.append(batch(b"b"), sync=True)
    assert synced.high_watermark == 2
    synced.append(batch(b"c"))
    synced.sync()
    assert synced.high_watermark == 3
    for log in (written, synced):
        log.close()


# --- waiting -------------------------------------------------------------------------------------


def waits(log: PartitionLog, *how: object, **named: object) -> tuple[threading.Thread, list[bool]]:
    """A thread that waits, once it does."""
    answers: list[bool] = []
    before = log._state.waiters.count
    thread = threading.Thread(
        target=lambda: answers.append(log.wait(*how, **named))  # type: ignore[arg-type]
    )
    thread.start()
    while log._state.waiters.count == before and thread.is_alive():
        time.sleep(0.001)
    return thread, answers


def test_a_reader_is_woken_by_an_append(log: PartitionLog) -> None:
    assert log.wait(23, timeout_s=0) is True
    assert log.wait(24, timeout_s=0) is False
    thread, answers = waits(log, 24, timeout_s=60)
    log.append(batch(b"more"))
    thread.join()
    assert answers == [True]


def test_a_reader_is_woken_when_it_has_enough(log: PartitionLog) -> None:
    one = len(batch(b"more"))
    thread, answers = waits(log, 24, min_bytes=2 * one, timeout_s=60)
    log.append(batch(b"more"))
    thread.join(0.05)
    assert thread.is_alive()
    log.append(batch(b"more"))
    thread.join()
    assert answers == [True]
    # Over several segments, and from inside a batch.
    assert log.wait(1, min_bytes=log.size_bytes, timeout_s=0) is True
    assert log.wait(1, min_bytes=log.size_bytes + 1, timeout_s=0) is False


def test_a_reader_is_woken_by_its_bound(log: PartitionLog) -> None:
    thread, answers = waits(log, 3, isolation=HIGH, timeout_s=60)
    log.append(batch(b"more"))
    log.advance_high_watermark(3)  # inside of its batch: still nothing to read
    thread.join(0.05)
    assert thread.is_alive()
    log.advance_high_watermark(4)
    thread.join()
    assert answers == [True]


def test_a_reader_is_woken_by_the_end_of_a_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(in_txn(1, 0, b"a"))
    thread, answers = waits(log, 0, isolation="read_committed", timeout_s=60)
    end_txn(log, ControlType.COMMIT, 1)
    thread.join()
    assert answers == [True]
    log.close()


def test_a_reader_is_woken_by_the_close(log: PartitionLog) -> None:
    thread, answers = waits(log, 24, timeout_s=60)
    log.close()
    thread.join()
    assert answers == [False]


# --- beside a writer -----------------------------------------------------------------------------


def test_a_region_is_readable_after_its_segment_is_gone(log: PartitionLog) -> None:
    log.advance_high_watermark(24)
    region = log.read(0).region
    assert region is not None
    held = bytes(region.read())
    view = log.view
    log.advance_start(8)
    assert len(log.retain().deletions) == 1
    log.remove_due(all_of_them=True)
    assert not Path(region.file.path).exists()
    assert bytes(region.read()) == held
    assert os.pread(region.file.fileno(), 10, 0) == held[:10]
    # A view that was taken before goes on as it was.
    assert view.read(0, 1000).region is not None
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0)


def test_a_segment_that_was_deleted_before_it_was_opened(tmp_path: Path) -> None:
    """Nothing of it is in memory: an old view cannot read it, and does not pretend that it was empty."""
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(in_txn(1, 0, b"a"))
    end_txn(log, ControlType.ABORT, 1)
    log.roll()
    log.append(batch(b"b"))
    log = reopen(log, watermark=Watermark.WRITTEN)
    view = log.view
    log.advance_start(2)
    log.retain()
    with pytest.raises(StorageError):
        view.read(0, 100)
    assert len(view.aborted_between(0, 2)) == 1  # this was known
    view.segments[0]._aborted = None  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        view.aborted_between(0, 2)
    # Who asks the log, and not the view, is told what is so now.
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0)
    log.close()


def test_a_view_does_not_move(log: PartitionLog) -> None:
    view = log.view
    before = view.read(23, 1000).size_bytes
    log.append(batch(b"more"))
    log.roll()
    assert (view.log_end, view.read(23, 1000).size_bytes) == (24, before)
    with pytest.raises(OffsetOutOfRangeError):
        view.read(25, 1000)


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_readers_beside_appends_rolls_and_retention(tmp_path: Path) -> None:
    """Each reader follows the log on its own; what it sees is dense, right, and never torn."""
    configs = {"internal.segment.bytes": 1500, "index.interval.bytes": 0, "retention.bytes": 6000}
    log = open_log(tmp_path, configs, watermark=Watermark.WRITTEN)
    errors: list[BaseException] = []
    last = 900
    seen = [0, 0, 0]

    def value(offset: int) -> bytes:
        return b"%d" % offset * (1 + offset % 7)

    def follow(number: int, isolation: Isolation) -> None:
        at = 0
        try:
            while at < last:
                if not log.wait(at, isolation=isolation, timeout_s=30):
                    raise AssertionError(f"nothing more behind {at}")
                try:
                    answer = log.read(at, 700, isolation)
                except OffsetOutOfRangeError as error:
                    if at >= error.start:
                        raise
                    at = error.start  # retention was faster
                    continue
                if answer.region is None:
                    continue
                data = bytes(answer.region.read())
                whole = list(scan_batches(data))[-1].end_position
                for record in decode_records(data[:whole]):
                    if record.offset >= at:
                        assert record.value == value(record.offset)
                        assert record.offset == at
                        at += 1
                        seen[number] += 1
                assert log.offset_for_time(T + at - 1) is not None or at <= log.log_start
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [
        threading.Thread(target=follow, args=(number, isolation))
        for number, isolation in enumerate(Isolation)
    ]
    for thread in threads:
        thread.start()
    for offset in range(last):
        log.append(batch(value(offset), timestamp=T + offset))
        if offset % 50 == 49:
            log.retain()
            log.remove_due(all_of_them=True)
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert log.failure is None
    assert log.log_start > 0
    assert min(seen) > 0
    log.close()


@pytest.mark.usefixtures("busy")
def test_readers_beside_truncation(tmp_path: Path) -> None:
    """A follower's log is cut and goes on with other records: a reader gets the one or the other."""
    configs = {"internal.segment.bytes": 1000, "index.interval.bytes": 0}
    log = open_log(tmp_path, configs)
    errors: list[BaseException] = []
    done = threading.Event()
    reads = [0]

    def look() -> None:
        at = 0
        try:
            while not done.is_set():
                at = (at * 7 + 3) % 60
                try:
                    answer = log.read(at, 300)
                    log.offset_for_time(T + at)
                    log.offset_of_largest_time()
                except OffsetOutOfRangeError:
                    continue
                if answer.region is not None:
                    data = bytes(answer.region.read())
                    # It was cut meanwhile: then what it holds is shorter, or the later records.
                    for header in scan_batches(data):
                        assert header.magic == 2
                        reads[0] += 1
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for life in range(60):
        for _ in range(30):
            end = log.log_end
            log.append_as_follower(small(end, epoch=life))
        log.truncate(max(log.log_end - 25, 0))
    done.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert log.failure is None
    assert reads[0] > 0
    assert offsets(log) == list(range(log.log_end))
    log.close()
