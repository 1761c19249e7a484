"""A topic is deleted while it is cleaned, and another one of the same name created: nothing of the old one's
cleaning is taken for the new one's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import UnknownPartitionError
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.operation import GroupRecorder
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.testing import ManualClock
from stratalog.types import TopicPartition

PARTITION = TopicPartition("t", 0)
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": 2000}
QUICK = {"log.cleaner.dedupe.buffer.size": 2 << 20}
#: The new topic is longer than the old one: an offset of the old one lies within it.
OLD, NEW = 40, 80


class HookedClock(ManualClock):
    """A clock that calls ``hook`` whenever the time is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.hook: Callable[[], object] = int

    def now_ms(self) -> int:
        self.hook()
        return super().now_ms()


class Recreation:
    """Deletes the topic and creates it again, once."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.is_done = False

    def __call__(self) -> bool:
        if not self.is_done:
            self.is_done = True
            self._logs.delete_topic("t")
            create(self._logs, NEW)
        return False


def create(logs: Logs, updates: int) -> None:
    logs.create("t", 1, COMPACTED)
    for update in range(updates):
        records = [(b"key-%d" % key, b"%s %04d" % (b"x" * 40, update)) for key in range(5)]
        logs.append("t", records, partition=0)


def opened(root: Path, clock: ManualClock) -> Logs:
    return stratalog.open(str(root), config=QUICK, clock=clock)


def stored(root: Path) -> dict[TopicPartition, int]:
    path = root / "cleaner-offset-checkpoint"
    return decode_offsets(path.read_bytes()) if path.exists() else {}


def check_new(logs: Logs, root: Path) -> None:
    """The new topic is not cleaned, nothing is known of a cleaning, and it can be cleaned."""
    assert stored(root) == {}
    status = logs.cleaner_status("t")[PARTITION]
    assert status.first_dirty == 0
    assert (status.last_run, status.uncleanable, status.is_in_progress) == (None, None, False)
    assert status.needs_cleaning is not None
    assert len(list(logs.read("t").records())) == 5 * NEW
    logs.clean("t", roll=True)
    assert len(list(logs.read("t").records())) == 5
    assert stored(root) == {PARTITION: 5 * NEW}


def test_the_end_of_a_cleaning_is_not_stored_for_a_new_topic(tmp_path: Path) -> None:
    """It is created between the last swap and the checkpoint."""
    clock = HookedClock()
    with opened(tmp_path, clock) as logs:
        create(logs, OLD)
        recreate = Recreation(logs)
        clock.hook = lambda: list((tmp_path / "t-0").glob("*.deleted")) and recreate()
        ((result,),) = logs.clean("t", roll=True).values()
        clock.hook = int
        assert recreate.is_done
        assert result.end_offset == 5 * OLD, "the old one was cleaned to its end"
        check_new(logs, tmp_path)


def test_the_end_of_a_compaction_is_not_stored_for_a_new_topic(tmp_path: Path) -> None:
    with opened(tmp_path, ManualClock()) as logs:
        create(logs, OLD)
        log = logs.partition("t")
        log.roll()
        rewrite = logs.compaction()
        ((plan,),) = [(each.plan,) for each in logs.plan_rewrite(rewrite, [PARTITION])]
        assert plan is not None
        limits = RewriteOptions().limits(logs._clock)
        groups = rewrite.carry_out(log, plan, log.config, limits, GroupRecorder())
        for _ in plan.groups:
            next(groups)
        Recreation(logs)()
        assert list(groups) == [], "all groups were rewritten before"
        check_new(logs, tmp_path)


def test_a_cleaning_that_a_deletion_ends_does_not_make_a_new_topic_uncleanable(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, ManualClock()) as logs:
        create(logs, OLD)
        recreate = Recreation(logs)
        with pytest.raises(UnknownPartitionError, match="was deleted in the meantime"):
            logs.clean("t", limits=RewriteLimits(is_stopped=recreate))
        check_new(logs, tmp_path)


def test_the_background_cleaner_passes_over_a_topic_that_is_deleted_meanwhile(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, ManualClock()) as logs:
        create(logs, OLD)
        recreate = Recreation(logs)
        assert logs._cleaner.clean_dirtiest(RewriteLimits(is_stopped=recreate))
        assert recreate.is_done
        check_new(logs, tmp_path)
