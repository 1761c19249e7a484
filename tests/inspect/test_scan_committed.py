"""``scan(isolation="read_committed")``: what a consumer of that isolation got from Kafka."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.records.control import ControlType
from tests.cli.runner import run
from tests.judges.peers.golden import golden_sets
from tests.storage.logs import end_txn, in_txn, open_log

SETS = [golden for golden in golden_sets() if (golden.path / "expected-committed.jsonl").exists()]


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_a_committed_scan_is_what_kafka_gave_a_committed_consumer(golden):
    wanted = sorted(
        (line["topic"], line["partition"], line["offset"])
        for line in golden.expected(committed=True)
    )
    table = stratalog.scan(
        golden.log_dirs, columns=["topic", "partition", "offset"], isolation="read_committed"
    ).to_table()
    shown = {(row["topic"], row["partition"]) for row in golden.expected(committed=True)}
    found = sorted(tuple(row.values()) for row in table.to_pylist())
    assert [row for row in found if row[:2] in shown] == wanted


def test_aborted_and_open_transactions_are_left_out(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(in_txn(1, 0, b"aborted"))
    end_txn(log, ControlType.ABORT, 1)
    log.append(in_txn(1, 1, b"committed"))
    end_txn(log, ControlType.COMMIT, 1)
    log.append(in_txn(1, 2, b"open"))
    log.close()

    def values(**how):
        return (
            stratalog.scan(tmp_path / "t-0", columns=["value"], **how)
            .to_table()["value"]
            .to_pylist()
        )

    assert values() == [b"aborted", b"committed", b"open"]
    assert values(isolation="read_committed") == [b"committed"]
    assert values(isolation="read_committed", start=0, end=1) == []
    assert len(run("cat", "--isolation", "read_committed", tmp_path / "t-0").rows()) == 1
    with pytest.raises(UsageError, match="isolation is read_uncommitted or read_committed"):
        values(isolation="all")
