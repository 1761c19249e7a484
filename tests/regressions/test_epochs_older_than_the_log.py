"""A crash brought back an epoch file that had been replaced, and the log had gone on in a lower epoch: the
epochs then said of a batch what its own header denies."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog


@pytest.mark.parametrize(
    ("epochs_of_batches", "file", "expected"),
    [
        ([0, 0, 0], [(0, 0), (1, 2)], [(0, 0)]),
        ([0, 0, 0], [(0, 0), (1, 1), (2, 2)], [(0, 0)]),
        ([0, 1, 1], [(0, 0), (2, 1)], [(0, 0), (1, 1)]),
        ([0, 1, 3], [(0, 0), (2, 1)], [(0, 0), (1, 1), (3, 2)]),
        ([0, 1, 3], [(0, 0), (1, 1), (3, 2)], [(0, 0), (1, 1), (3, 2)]),
        ([0, 2, 2], [(0, 0), (1, 1), (2, 1)], [(0, 0), (2, 1)]),
    ],
)
def test_what_the_batches_say_counts(tmp_path: Path, epochs_of_batches, file, expected) -> None:
    log = PartitionLog.open(str(tmp_path), LogConfig())
    for epoch in epochs_of_batches:
        log.append(build_batch([Record(b"value")]), leader_epoch=epoch)
    log.abandon()
    lines = [f"{epoch} {start}" for epoch, start in file]
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    log = PartitionLog.open(str(tmp_path), LogConfig())
    assert [tuple(each) for each in log.epochs] == expected
    log.close()
