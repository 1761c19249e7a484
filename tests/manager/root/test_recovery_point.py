"""A log that was cut is not taken for damaged later: the recovery point is written down before an append."""

from __future__ import annotations

from pathlib import Path

import stratalog
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.names import RECOVERY_CHECKPOINT
from stratalog.types import TopicPartition


def test_a_cut_below_the_recovery_point_lowers_it_at_once(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        for value in ("one", "two", "three"):
            logs.append("a", [value])
        path = logs.partition("a").segments[0].log.path
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 0x01  # in the last batch: it was fsynced before
    Path(path).write_bytes(data)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    logs = stratalog.open(tmp_path, on_damage="cut")
    assert logs.latest("a") == 2
    said = decode_offsets((tmp_path / RECOVERY_CHECKPOINT).read_bytes())
    assert said == {TopicPartition("a", 0): 2}
    logs.append("a", ["four"])
    logs.close()
    with stratalog.open(tmp_path) as again:
        assert [each.value for each in again.read("a").records()] == [b"one", b"two", b"four"]
