"""What a log cannot be asked for is told as a UsageError, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.storage.partition_log import PartitionLog
from tests.storage.logs import batch, crash, open_log, values

WRONG: dict[str, Callable[[PartitionLog], object]] = {
    "time": lambda log: log.offset_for_time(-(2**63) - 1),
    "isolation of a read": lambda log: log.read(0, isolation="foo"),
    "isolation of a wait": lambda log: log.wait(0, isolation="foo", timeout_s=0),
    "restart below": lambda log: log.restart(-1),
    "restart above": lambda log: log.restart(2**63),
    "start below": lambda log: log.restart(5, log_start=-1),
    "start above": lambda log: log.restart(5, log_start=2**63),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_changes_nothing(tmp_path: Path, case: str) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a"))
    with pytest.raises(UsageError):
        WRONG[case](log)
    assert (log.failure, log.log_start, log.log_end) == (None, 0, 1)
    log.append(batch(b"b"))
    log = crash(log)
    assert values(log) == [b"a", b"b"]
    log.close()


def test_the_outermost_ones_are_taken(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a"))
    first = log.offset_for_time(-(2**63))
    assert first is not None
    assert first.offset == 0
    assert log.offset_for_time(2**63) is None
    assert log.wait(0, isolation="log_end", timeout_s=0)
    log.restart(2**63 - 1)
    assert (log.log_start, log.log_end, log.failure) == (2**63 - 1, 2**63 - 1, None)
    log.close()
