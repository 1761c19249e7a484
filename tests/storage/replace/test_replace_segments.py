"""Rewritten segments take the place of sealed ones in an open log, all of them or none."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.control import ControlType
from stratalog.storage.files.filesystem import DirEntry, OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import SEGMENT_KINDS, FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.replace.swap import plan_filler
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock, MemoryFileSystem
from tests.storage.logs import (
    again,
    bases,
    batch,
    crash,
    end_txn,
    headers,
    in_txn,
    offsets,
    open_log,
    reopen,
    sent,
    values,
)
from tests.storage.replace.rewrites import (
    cleaned_path,
    even,
    everything,
    nothing,
    rewrite,
    write_cleaned,
)

CONFIGS = {
    "internal.segment.bytes": 400,
    "index.interval.bytes": 64,
    "file.delete.delay.ms": 1000,
}
CONFIG = LogConfig.of(CONFIGS)
LAST = 30


def filled(folder: Path, count: int = LAST) -> PartitionLog:
    log = open_log(folder, CONFIGS, watermark="written")
    for number in range(count):
        log.append(batch(b"value %d" % number))
    assert len(log.segments) >= 6
    return log


@pytest.mark.parametrize("keep", [everything, even])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_rewritten_segments_take_the_place_of_the_old(tmp_path: Path, keep, count: int) -> None:
    log = filled(tmp_path)
    old = log.segments[1 : 1 + count]
    span = range(old[0].base_offset, log.segments[1 + count].base_offset)
    kept = [n for n in range(LAST) if n not in span or keep is everything or n % 2 == 0]
    before = bases(log)
    assert log.replace_segments(old, rewrite(log, old, keep))
    assert offsets(log) == kept
    assert bases(log) == [b for b in before if b == span[0] or b not in span]
    log.append(batch(b"later"))
    for opened in (reopen(log), crash(reopen(log))):
        assert offsets(opened) == [*kept, LAST]
        assert opened.report.cuts == []
        opened.close()


def test_one_segment_becomes_several(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[1:4]
    middle = old[1].base_offset + 2
    new = rewrite(log, old, at=[middle])
    assert log.replace_segments(old, new)
    assert bases(log)[1:3] == [old[0].base_offset, middle]
    assert offsets(log) == list(range(LAST))
    assert offsets(crash(log)) == list(range(LAST))


def test_the_old_files_are_removed_after_the_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, CONFIGS, clock=clock)
    for number in range(LAST):
        log.append(sent(7, number, b"value %d" % number))
    old = log.segments[1:3]
    log.replace_segments(old, rewrite(log, old))
    gone = sorted(path.name for path in tmp_path.glob("*.deleted"))
    first, second = (f"{segment.base_offset:020d}" for segment in old)
    assert gone == sorted(
        [f"{b}.{kind}.deleted" for b in (first, second) for kind in ("log", "index", "timeindex")]
        # The snapshot of a base offset that is still there stays.
        + [f"{second}.snapshot.deleted"]
    )
    assert (tmp_path / f"{first}.snapshot").exists()
    assert log.remove_due() == 0
    clock.advance(1000)
    assert log.remove_due() == len(gone)
    assert not list(tmp_path.glob("*.deleted"))
    assert not list(tmp_path.glob("*.cleaned"))
    assert not list(tmp_path.glob("*.swap"))


def test_aborted_transactions_stay_aborted(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIGS, watermark="written")
    for number in range(8):
        log.append(batch(b"plain %d" % number))
        log.append(in_txn(7, number * 2, b"aborted"))
        end_txn(log, ControlType.ABORT, 7)
        log.append(in_txn(7, number * 2 + 1, b"committed"))
        end_txn(log, ControlType.COMMIT, 7)
    expected = values(log, isolation=Isolation.COMMITTED)
    assert b"aborted" not in expected
    old = log.segments[:-1]
    assert log.replace_segments(old, rewrite(log, old))
    assert values(log, isolation=Isolation.COMMITTED) == expected
    assert values(crash(log, watermark="written"), isolation=Isolation.COMMITTED) == expected


def test_records_that_end_below_the_old_segments_leave_an_empty_segment(tmp_path: Path) -> None:
    """A load that finishes the swap finds the old segments by the offsets of the new ones."""
    log = filled(tmp_path)
    old = log.segments[1:4]
    low, high = old[0].base_offset, log.segments[4].base_offset
    new = rewrite(log, old, lambda header: header.base_offset == low)
    assert log.replace_segments(old, new)
    assert bases(log)[1:3] == [low, old[-1].base_offset]
    assert offsets(log) == [n for n in range(LAST) if n <= low or n >= high]
    merged = log.segments[1:3]
    assert log.replace_segments(merged, rewrite(log, merged)), "the empty one goes with the next"
    assert bases(log)[1:3] == [low, high]
    assert offsets(reopen(log)) == [n for n in range(LAST) if n <= low or n >= high]


@pytest.mark.parametrize(
    ("old", "new", "next_offset", "filler"),
    [
        ([(0, 9), (5, 9)], [0], 7, None),
        ([(0, 9), (5, 9)], [0], 6, None),
        ([(0, 9), (5, 9)], [0], 5, 5),
        ([(0, 9), (5, 9)], [0], 0, 5),
        ([(0, 9), (5, 9), (9, 9)], [0], 7, 9),
        ([(0, 9), (5, 9), (9, 0)], [0], 3, 5),
        ([(0, 9), (5, 0)], [0], 3, None),
        ([(0, 9), (5, 9)], [0, 5], 3, None),
        ([(0, 9)], [0], 0, None),
    ],
)
def test_filler_covers_the_last_old_segment_with_records(old, new, next_offset, filler) -> None:
    assert plan_filler(old, new, next_offset) == filler


def test_a_segment_without_any_record_takes_the_place(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[1:2]
    assert log.replace_segments(old, rewrite(log, old, nothing))
    span = range(old[0].base_offset, log.segments[2].base_offset)
    assert offsets(log) == [n for n in range(LAST) if n not in span]
    assert offsets(reopen(log)) == [n for n in range(LAST) if n not in span]


def test_appends_and_rolls_go_on_while_segments_are_rewritten(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[1:3]
    new = rewrite(log, old, even)
    for number in range(10):
        log.append(batch(b"meanwhile %d" % number))
    log.flush()
    assert log.replace_segments(old, new)
    log.append(batch(b"after"))
    span = range(old[0].base_offset, old[-1].base_offset + 5)
    left = [n for n in range(LAST + 11) if n not in span or n % 2 == 0]
    assert [n for n in offsets(log) if n not in span] == [n for n in left if n not in span]
    assert log.log_end == LAST + 11
    assert log.recovery_point <= log.log_end


@pytest.mark.parametrize("change", ["retain", "truncate", "restart", "replace"])
def test_nothing_is_replaced_if_the_log_does_not_have_the_segments_any_more(
    tmp_path: Path, change: str
) -> None:
    log = filled(tmp_path)
    old = log.segments[1:3]
    new = rewrite(log, old, even)
    if change == "retain":
        log.advance_start(log.segments[2].base_offset)
        log.retain()
    elif change == "truncate":
        log.truncate(old[1].base_offset + 1)
    elif change == "restart":
        log.restart(LAST)
    else:
        assert log.replace_segments(old, new)
    expected = offsets(log)
    assert not log.replace_segments(old, new)
    assert offsets(log) == expected
    assert offsets(crash(log)) == expected


def test_what_cannot_replace_segments_is_refused(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[1:3]
    low, high = old[0].base_offset, log.segments[3].base_offset
    rewrite(log, old)
    for segments, new, match in (
        (log.segments[-1:], [log.segments[-1].base_offset], "only sealed"),
        ((), [low], "only sealed"),
        (old, [], "same base offset"),
        (old, [low + 1], "same base offset"),
        (old, [low, low], "in order"),
        (log.segments[1:2], [low], "the next one starts at"),
    ):
        with pytest.raises(UsageError, match=match):
            log.replace_segments(segments, new)
    write_cleaned(log, high, b"")
    with pytest.raises(UsageError, match="reaches offset"):
        log.replace_segments(old, [low, high])
    with pytest.raises(StorageError, match="no such file"):
        log.replace_segments(log.segments[2:3], [log.segments[2].base_offset])
    assert log.failure is None
    assert offsets(log) == list(range(LAST))


def test_a_damaged_rewrite_does_not_replace_sound_segments(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[1:3]
    new = rewrite(log, old)
    path = Path(cleaned_path(log, new[0], FileKind.LOG))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        log.replace_segments(old, new)
    assert log.failure is None
    assert offsets(log) == list(range(LAST))


def cleaned(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.cleaned"))


@pytest.mark.parametrize("outcome", ["raises", "is False"])
def test_a_replacement_that_does_not_happen_leaves_no_file_of_its_own(
    tmp_path: Path, outcome: str
) -> None:
    """The empty segment that covers old ones is not known to the caller, who deletes only its own files."""
    log = filled(tmp_path)
    old = log.segments[1:4]
    new = rewrite(log, old, lambda header: header.base_offset == old[0].base_offset)
    prepared = cleaned(tmp_path)
    stop = OneFault(log, is_truncated=outcome == "is False")
    log._state.file_system = stop
    if outcome == "is False":
        assert not log.replace_segments(old, new)
    else:
        with pytest.raises(StorageError, match="too many"):
            log.replace_segments(old, new)
    assert stop.is_used
    assert cleaned(tmp_path) == prepared


class OneFault(OsFileSystem):
    """When the empty segment is there: the log is truncated meanwhile, or a folder cannot be listed."""

    def __init__(self, log: PartitionLog, *, is_truncated: bool) -> None:
        super().__init__()
        self._log = log
        self._is_truncated = is_truncated
        self.is_used = False

    def set_modified(self, path: str, modified_ms: int) -> None:
        super().set_modified(path, modified_ms)
        if path.endswith(".cleaned") and self._is_truncated:
            self.is_used = True
            self._log.truncate(7)

    def list_dir(self, path: str) -> list[DirEntry]:
        if len(cleaned(Path(path))) > 3 and not self._is_truncated:
            self.is_used = True
            raise StorageError("too many open files", path=path, errno=errno.EMFILE)
        return super().list_dir(path)


@pytest.mark.parametrize("other", [1, 4])
def test_a_second_prepared_rewrite_is_refused_by_name(tmp_path: Path, other: int) -> None:
    log = filled(tmp_path)
    waiting, old = log.segments[other : other + 1], log.segments[2:3]
    (base,) = rewrite(log, waiting)
    new = rewrite(log, old)
    with pytest.raises(UsageError, match=rf"{base:020d}\.\w+\.cleaned is of another rewrite"):
        log.replace_segments(old, new)
    assert log.failure is None
    for kind in SEGMENT_KINDS:
        Path(cleaned_path(log, base, kind)).unlink(missing_ok=True)
    assert log.replace_segments(old, new)
    assert offsets(crash(log)) == list(range(LAST))


def opened(files: FaultyFileSystem, **how: Any) -> PartitionLog:
    clock = ManualClock()
    return PartitionLog.open(
        "/t-0", CONFIG, file_system=files, clock=clock, watermark="written", **how
    )


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.SHORT_WRITE])
def test_whichever_call_fails_the_log_is_whole_or_failed(fault: Fault) -> None:
    """Every call fails once. The log shows the new records if the call returned True, otherwise the old ones,
    as a view from before does. The next load shows the same, or either if the log has failed."""
    disk = MemoryFileSystem(folders=["/t-0"])
    log = opened(FaultyFileSystem(disk))
    for each in range(LAST):
        log.append(sent(7, each, b"value %d" % each))
    log.close()
    disk.sync_all()
    failures = 0
    for number in range(1, 1000):
        made = disk.fork()
        files = FaultyFileSystem(made)
        log = opened(files, is_clean=True)
        old, held, before = log.segments[1:4], log.view, list(range(LAST))
        span = range(old[0].base_offset, log.segments[4].base_offset)
        after = [n for n in before if n not in span or n % 2 == 0]
        new = rewrite(log, old, even, at=[old[1].base_offset + 1])
        files.arm(number, fault=fault)
        is_replaced = False
        try:
            is_replaced = log.replace_segments(old, new)
        except (StorageError, MemoryError, KeyboardInterrupt):
            failures += 1
        files.heal()
        shown = offsets(log)
        assert shown == (after if is_replaced else before), files.failed
        assert [held.find(offset) is not None for offset in before] == [True] * LAST
        if log.failure is None:
            log.append(sent(7, LAST, b"later"))
        log.abandon()
        loaded = offsets(again(log, file_system=made, recovery_point=log.recovery_point))
        if log.failure is None:
            assert loaded == [*shown, LAST], files.failed
        else:
            assert loaded in (before, after), files.failed
        if not files.failed:
            break
    else:
        pytest.fail("it never came to an end")
    assert failures > 5


def test_a_full_disk_leaves_the_log_as_it_was_and_open() -> None:
    made = MemoryFileSystem(folders=["/t-0"])
    files = FaultyFileSystem(made)
    log = PartitionLog.open("/t-0", CONFIG, file_system=files, clock=made.clock)
    for each in range(LAST):
        log.append(batch(b"value %d" % each))
    old = log.segments[1:4]
    new = rewrite(log, old, even, at=[old[1].base_offset + 1])
    for number in range(1, 7):  # three files each of two new segments: all of these can be undone
        files.arm(number, fault=Fault.ENOSPC, calls=(Call.RENAME,))
        with pytest.raises(StorageError):
            log.replace_segments(old, new)
        assert log.failure is None
        assert offsets(log) == list(range(LAST))
        files.heal()
        assert not [path for path in made.paths() if path.endswith(".swap")]
    assert log.replace_segments(old, new)


@pytest.mark.parametrize("number", [1, 2])
def test_too_many_open_files_for_an_fsync_leave_the_log_as_it_was_and_open(number: int) -> None:
    """The new segments do not count before the lowest is renamed: what was renamed needs no fsync to undo."""
    made = MemoryFileSystem(folders=["/t-0"])
    files = FaultyFileSystem(made)
    log = opened(files)
    for each in range(LAST):
        log.append(batch(b"value %d" % each))
    old = log.segments[1:4]
    new = rewrite(log, old, even, at=[old[1].base_offset + 1])
    files.arm(number, fault=Fault.EMFILE, sticky=True, calls=(Call.SYNC_DIR,))
    with pytest.raises(StorageError):
        log.replace_segments(old, new)
    assert files.failed
    files.heal()
    assert log.failure is None
    log.append(batch(b"later"))
    assert log.replace_segments(old, new)


def test_a_producer_snapshot_that_cannot_be_renamed_does_not_undo_the_swap() -> None:
    made = MemoryFileSystem(folders=["/t-0"])
    files = FaultyFileSystem(made)
    log = opened(files)
    for each in range(LAST):
        log.append(sent(7, each, b"value %d" % each))
    old = log.segments[1:3]
    new = rewrite(log, old)
    # Three files each: new ones to ``.swap``, old ones to ``.deleted``, new ones to their final names.
    files.arm(3 + 2 * 3 + 3 + 1, fault=Fault.EIO, calls=(Call.RENAME,))
    assert log.replace_segments(old, new)
    assert [str(each) for each in files.failed if "snapshot" in str(each)]
    files.heal()
    assert log.failure is None
    log.append(sent(7, LAST, b"later"))
    assert offsets(crash(log, file_system=made)) == list(range(LAST + 1))
    assert not [path for path in made.paths() if path.endswith(".cleaned")]


def test_a_load_that_finishes_a_swap_leaves_no_index_of_a_replaced_segment() -> None:
    """The new segments end below old ones with aborted transactions, and the power is cut when the swap is
    decided: the empty segment that covers them has no entries."""
    made = MemoryFileSystem(folders=["/t-0"])
    files = FaultyFileSystem(made)
    log = opened(files)
    for number in range(8):
        log.append(batch(b"plain %d" % number))
        log.append(in_txn(7, number, b"aborted"))
        end_txn(log, ControlType.ABORT, 7)
    old = log.segments[1:4]
    assert all(segment.aborted for segment in old)
    low = old[0].base_offset
    data = old[0].log.read(0, headers(old[0].log.read(0, old[0].size_bytes))[0].end_position)
    write_cleaned(log, low, data)
    staged = 7  # three files of the new segment, and four of the empty one
    files.arm(staged + 1, fault=Fault.EIO, calls=(Call.RENAME,))
    with pytest.raises(StorageError):
        log.replace_segments(old, [low])
    assert log.failure is not None
    assert len([path for path in made.paths() if path.endswith(".swap")]) == staged
    log.abandon()
    found = again(log, file_system=made, recovery_point=log.recovery_point)
    assert bases(found)[1:3] == [low, old[-1].base_offset]
    assert [segment.size_bytes for segment in found.segments[1:3]] == [len(data), 0]
    assert [segment.aborted for segment in found.segments[1:3]] == [(), ()]
    found.close()


def test_what_a_failed_rewrite_could_not_remove_does_not_stop_the_next_one(tmp_path: Path) -> None:
    log = filled(tmp_path)
    old = log.segments[3:5]
    rewrite(log, old)  # and its caller could not delete it
    with log.rewriting():
        assert not list(tmp_path.glob("*.cleaned"))
        lower = log.segments[1:3]
        assert log.replace_segments(lower, rewrite(log, lower))
    assert offsets(log) == list(range(LAST))
