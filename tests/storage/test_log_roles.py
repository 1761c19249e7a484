"""The roles of an open log: each has the methods of its use, and PartitionLog has all of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from stratalog.storage.log_roles.appender import LogAppender
from stratalog.storage.log_roles.maintenance import LogMaintenance
from stratalog.storage.log_roles.open_log import OpenLog
from stratalog.storage.log_roles.reader import LogReader
from stratalog.storage.partition_log import PartitionLog
from tests.storage.logs import batch, open_log

ROLES = {
    OpenLog: {
        "config", "failure", "high_watermark", "is_closed", "last_stable_offset", "latest_epoch", "log_end",
        "log_start", "recovery_point", "synced_offset",
    },
    LogAppender: {
        "adopt", "advance_high_watermark", "append", "append_as_follower", "append_each", "assign_epoch",
        "begin_sync", "producers", "sync", "when_synced",
    },
    LogReader: {
        "end_offset_for_epoch", "epochs", "offset_for_time", "offset_of_largest_time", "read", "size_bytes",
        "subscribe", "view", "wait", "wake_readers",
    },
    LogMaintenance: {
        "advance_start", "before_truncation", "clock", "expire_producers", "facts", "file_system", "flush",
        "flush_if_due", "index_limits", "plan_retention", "reconfigure", "remove_due", "replace_indexes",
        "replace_segments", "restart", "retain", "rewriting", "roll", "segments", "truncate",
    },
    PartitionLog: {"abandon", "close", "open"},
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_methods_of_its_use(role: type) -> None:
    own = {name for name in vars(role) if not name.startswith("_")}
    assert own == ROLES[role]


def test_a_partition_log_has_every_method_of_every_role() -> None:
    names = {name for name, _ in inspect.getmembers(PartitionLog) if not name.startswith("_")}
    assert names == set().union(*ROLES.values())
    assert sum(map(len, ROLES.values())) == len(names), "no method stands in two roles"


def test_roles_of_a_log_share_its_state(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"internal.segment.bytes": 200})
    state = log._state
    appender, reader, keeper = LogAppender(state), LogReader(state), LogMaintenance(state)
    for number in range(5):
        appender.append(batch(b"%d" % number))
    appender.sync()
    assert reader.log_end == log.log_end == 5
    assert reader.read(0).region is not None
    assert len(keeper.segments) == len(log.segments) > 1
    appender.advance_high_watermark(5)
    keeper.advance_start(3)
    assert len(keeper.retain().deletions) > 0
    assert reader.log_start == log.log_start == 3
    log.close()
    assert appender.is_closed
    assert reader.is_closed
