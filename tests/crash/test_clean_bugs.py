"""Bugs of a cleaner are planted one after the other, and the tests beside this one find each of them.

The numbers are those of the project's list of planted bugs; ``test_planted_bugs`` has the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import INT64_MAX
from stratalog.rewrite.cleaned import CleanedSegments
from stratalog.rewrite.compact import clean as cleaning
from stratalog.rewrite.compact import compaction
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_log
from stratalog.rewrite.compact.compaction import CompactionRules
from stratalog.rewrite.compact.offset_map import aborted_fields, build_offset_map
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.compact.transactions import CleanedTransactions
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.rewriter import sources_of
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind, Stage
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.replace.swap import Swap
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.testing import Explorer, crash_state
from stratalog.types import NO_TIMESTAMP, Progress
from tests.crash.clean_world import CASES
from tests.crash.test_planted_bugs import Bug, Harness, both, nothing, patched
from tests.rewrite.compact import test_clean, workloads
from tests.rewrite.compact.test_clean import DAY_MS
from tests.rewrite.compact.workloads import clock_of, new_disk, open_log
from tests.storage.logs import batch, records

# The harnesses.


def crashes(name: str) -> Harness:
    """The power is cut at every step of a cleaning."""

    def run() -> None:
        case = CASES[name]
        Explorer(
            case.run, case.check, seed=3, states_per_point=3, depth=1, start=case.new_disk
        ).run()

    return run


def random_logs() -> None:
    """Random logs, with transactions, are left with what the models say."""
    test_clean.test_what_is_left_is_what_the_models_say(1 << 20, nothing)


def repeated_cleanings() -> None:
    test_clean.test_cleaning_again_and_again_comes_to_an_end()


def young_tombstones() -> None:
    test_clean.test_a_tombstone_is_kept_until_the_horizon_that_its_first_cleaning_sets()


def clean_everything(log: PartitionLog) -> None:
    now_ms = log.clock.now_ms()
    checkpoint = UnstoredCheckpoint(log, now_ms=now_ms)
    clean_log(log, checkpoint, CleanerSettings(), RewriteLimits(), now_ms=now_ms)


def newest_value_in_active_segment() -> None:
    """The newest value of a key is in the active segment, and a power cut takes it: an older one is there."""
    disk = new_disk()
    log = open_log(disk, LogConfig.of({"internal.segment.bytes": 200}))
    for number in range(6):
        log.append(batch(b"%d" % number, key=b"a"))
    log.roll()
    log.append(batch(b"newest", key=b"a"))
    clean_everything(log)
    left = open_log(crash_state(disk, "all-lost"), log.config)
    assert [record.key for record in records(left)] == [b"a"], "the key is lost"


def wrong_clock_during_cleaning() -> None:
    """The wall clock is years back while records without a time are cleaned: their age is that of their
    files, and retention keeps them when the clock is right again."""
    disk = new_disk()
    config = {"cleanup.policy": "compact,delete", "internal.segment.bytes": 200}
    log = open_log(disk, LogConfig.of({**config, "retention.ms": 7 * DAY_MS}))
    for number in range(6):
        log.append(batch(b"%d" % number, key=b"%d" % number, timestamp=NO_TIMESTAMP))
    log.roll()
    log.append(batch(b"young", key=b"young", timestamp=NO_TIMESTAMP))
    clock = clock_of(disk)
    now_ms = clock.now_ms()
    clock.set(now_ms - 3650 * DAY_MS)
    clean_everything(log)
    clock.set(now_ms)
    log.retain()
    keys = {record.key for record in records(log)}
    assert keys == {b"young", *(b"%d" % number for number in range(6))}, "live records expired"


# The bugs.


def aborted_for_ever(transactions: Iterable[AbortedTxn]) -> array[int]:
    return aborted_fields(each._replace(last_offset=INT64_MAX) for each in transactions)


def never_ended(self: CleanedTransactions, producer_id: int) -> tuple[bool, AbortedTxn | None]:
    transaction = self._aborted.get(producer_id)
    if transaction is None or producer_id not in self._observed:
        return True, None
    return False, transaction


def unstaged(self: Swap) -> None:
    """Nothing is staged …"""


def swapped_at_once(self: Swap) -> list[str]:
    """… and new segments get their names from ``.cleaned``."""
    deleted = []
    for base_offset in self.old:
        deleted += self._rename(base_offset, Stage.LIVE, Stage.DELETED)
    for base_offset in self.new:
        self._rename(base_offset, Stage.CLEANED, Stage.LIVE)
    self.sync_folder()
    return deleted


def noted_to_the_end(
    log: PartitionLog, cleanable: CleanableLog, newest: kernel.OffsetMap, note_read: Progress
) -> int:
    """The map gets the keys of the active segment, too."""
    view = log.view
    segments = view.segments.segments
    end = build_offset_map(
        newest,
        sources_of(view, segments),
        start=cleanable.first_dirty,
        end=view.log_end,
        aborted=(),
        note_read=note_read,
    )
    return min(end, cleanable.first_uncleanable)


def without_retention(*args: Any, **names: Any) -> CompactionRules:
    return replace(_real_rules(*args, **names), delete_retention_ms=0)


def ahead_of_time(*args: Any, **names: Any) -> CompactionRules:
    rules = _real_rules(*args, **names)
    return replace(rules, now_ms=rules.now_ms + DAY_MS)


def dated_now(self: CleanedSegments, _: int) -> dict[int, tuple[FileKind, ...]]:
    clock = self._file_system.clock  # type: ignore[attr-defined]
    return _real_finish(self, clock.now_ms())


_real_rules = cleaning.rules_of
_real_finish = CleanedSegments.finish

BUGS = [
    Bug(15, "the aborted transactions of a rewritten segment are lost",
        patched(CleanedSegments, "note_aborted", nothing), random_logs),
    Bug(15, "the same, and a kept header opens its transaction again",
        both(patched(CleanedSegments, "note_aborted", nothing),
             patched(workloads, "check_aborted", nothing)),
        repeated_cleanings),
    Bug(16, "an abort marker is applied to the next transaction",
        patched(compaction, "aborted_fields", aborted_for_ever), random_logs),
    Bug(16, "an abort marker does not end its transaction",
        patched(CleanedTransactions, "_end_aborted", never_ended), random_logs),
    Bug(17, "segments are swapped without .swap",
        both(patched(Swap, "stage", unstaged), patched(Swap, "finish", swapped_at_once)),
        crashes("merged")),
    Bug(18, "the last value is dropped for one in the active segment",
        patched(cleaning, "_note_keys", noted_to_the_end), newest_value_in_active_segment),
    Bug(19, "a tombstone has no horizon",
        patched(cleaning, "rules_of", without_retention), young_tombstones),
    Bug(19, "a tombstone is removed before its horizon",
        patched(cleaning, "rules_of", ahead_of_time), young_tombstones),
    Bug(21, "a wall clock that jumps expires live records",
        patched(CleanedSegments, "finish", dated_now), wrong_clock_during_cleaning),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=[f"{bug.number}: {bug.name}" for bug in BUGS])
def test_a_planted_bug_of_a_cleaner_is_found(
    bug: Bug, record_property: Callable[[str, object], None]
) -> None:
    with bug.planted(), pytest.raises((AssertionError, CorruptionError)):
        bug.harness()
    record_property("counted: planted bugs found", 1)


def test_every_bug_of_a_cleaner_is_planted() -> None:
    assert {bug.number for bug in BUGS} == {15, 16, 17, 18, 19, 21}


@pytest.mark.parametrize("harness", [newest_value_in_active_segment, wrong_clock_during_cleaning])
def test_nothing_is_found_where_no_bug_is_planted(harness: Harness) -> None:
    """The other harnesses are tests, and pass there."""
    harness()
