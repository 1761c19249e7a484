"""``on_damage="cut"`` took a segment that reaches into the next one as it is: nothing was reported, appends
were accepted, and no read of the log came to its end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import DamagedLogError
from stratalog.records.scan import scan_batches
from stratalog.types import TopicPartition


def test_last_batch_that_reaches_into_the_next_segment_is_truncated_and_kept(
    tmp_path: Path,
) -> None:
    root = tmp_path / "logs"
    with stratalog.open(root) as logs:
        logs.create("a", 1, {"internal.segment.bytes": 600})
        for number in range(12):
            logs.append("a", [f"{number}"])
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    path = min((root / "a-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    last = list(scan_batches(bytes(data)))[-1]
    data[last.position + 6] ^= 1  # its offset, 256 higher
    path.write_bytes(data)
    with (
        stratalog.open(shutil.copytree(root, tmp_path / "copy")) as logs,
        pytest.raises(DamagedLogError, match="segment_overlap"),
    ):
        logs.recover()
    with stratalog.open(root, on_damage="cut") as logs:
        (cut,) = logs.recover()[TopicPartition("a", 0)].cuts
        assert cut.reason == "segment_overlap"
        assert Path(str(cut.kept_as)).read_bytes() == data[last.position :]
        assert len(logs.damage) == 1
        values = [int(record.value or b"") for record in logs.read("a").records()]
        assert values == [number for number in range(12) if number != last.base_offset]
