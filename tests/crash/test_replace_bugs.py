"""The tests of replacements are tested: each of these bugs is planted in turn, and they must find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from stratalog.manager.commits import replace as commit_replace
from stratalog.manager.commits.replace import GroupSwaps
from stratalog.storage.commits.journal import CommitJournal
from stratalog.storage.commits.records import Intent
from stratalog.testing import Explorer
from stratalog.testing.explorer import CrashCheckError
from tests.crash.test_replace_crashes import SCENARIOS, disk

pytestmark = pytest.mark.proof

Planting = Callable[[], Any]


def without_intent() -> Any:
    """Nothing is written down before the first swap."""
    real = CommitJournal.append

    def append(journal: CommitJournal, record: Any) -> None:
        if isinstance(record, Intent):
            journal.state = journal.state.with_record(record)
        else:
            real(journal, record)

    return mock.patch.object(CommitJournal, "append", append)


def checkpoint_first() -> Any:
    """The cleaner checkpoint is written before the swaps."""
    real = GroupSwaps._replace

    def replace(swaps: GroupSwaps, partition: Any, log: Any, *given: Any) -> Any:
        swaps._store_cleaned(partition.topic_partition, log, partition.cleaned_to)
        return real(swaps, partition, log, *given)

    return mock.patch.object(GroupSwaps, "_replace", replace)


def forced() -> Any:
    """A replay does not look whether the old segments are those that were planned for."""

    def find_old(log: Any, group: Any) -> Any:
        return [each for each in log.segments[:-1] if group.start <= each.base_offset < group.end]

    return mock.patch.object(commit_replace, "find_old", find_old)


def going_on() -> Any:
    """A replay goes on after a group that others have changed."""
    real = GroupSwaps._replay_group

    def replay_group(swaps: GroupSwaps, *given: Any) -> bool:
        real(swaps, *given)
        return True

    return mock.patch.object(GroupSwaps, "_replay_group", replay_group)


def one_group_only() -> Any:
    """A replay finishes the first group, and leaves the others."""
    real = GroupSwaps._replay_group

    def replay_group(swaps: GroupSwaps, log: Any, group: Any, reports: Any) -> bool:
        return group.start > 0 or real(swaps, log, group, reports)

    return mock.patch.object(GroupSwaps, "_replay_group", replay_group)


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        (without_intent, "two_partitions"),
        (checkpoint_first, "two_partitions"),
        (forced, "others_compact_first"),
        (going_on, "others_compact"),
        (one_group_only, "two_partitions"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_planted_bug_is_found(bug: Planting, scenario: str) -> None:
    found = SCENARIOS[scenario]
    explorer = Explorer(found.run, found.check, seed=3, states_per_point=2, start=disk)
    with bug(), pytest.raises(CrashCheckError):
        explorer.run()
