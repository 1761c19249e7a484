"""``logs.recovery`` and ``logs.damage``: what recovery did is reported and logged, and no byte is lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import DamagedLogError
from stratalog.types import TopicPartition
from tests.manager.logdirs import values

LOG = "00000000000000000000.log"


def damaged_directory(root: Path, topics: tuple[str, ...] = ("a",)) -> dict[str, bytes]:
    """Topics of several segments, a bit of the first flipped, as a crash might meet them; and the data
    files of the first topic as they are then."""
    with stratalog.open(root) as logs:
        for topic in topics:
            logs.create(topic, 1, {"internal.segment.bytes": 1000})
            for number in range(12):
                logs.append(topic, [f"{number}-" + "x" * 300])
    for topic in topics:
        path = root / f"{topic}-0" / LOG
        data = bytearray(path.read_bytes())
        data[-10] ^= 1  # within the last value
        path.write_bytes(data)
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    return {path.name: path.read_bytes() for path in sorted((root / "a-0").glob("*.log"))}


def test_cut_deletes_no_intact_segment(tmp_path):
    before = damaged_directory(tmp_path)
    assert len(before) > 3
    with stratalog.open(tmp_path, on_damage="cut") as logs:
        assert values(logs, "a")[0] == b"0-" + b"x" * 300
        report = logs.recovery[TopicPartition("a", 0)]
        kept = {Path(cut.path).name: Path(str(cut.kept_as)) for cut in report.cuts}
        positions = {Path(cut.path).name: cut.position for cut in report.cuts}
        logs.append("a", ["goes on"])
    # Every byte of every segment is in the log or in a file that the report names, also after the close.
    assert kept.keys() == before.keys()
    for name, data in before.items():
        head = data[: positions[name]]
        assert kept[name].read_bytes() == data[len(head) :]
        if head:
            assert (tmp_path / "a-0" / name).read_bytes().startswith(head)
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a")[-1] == b"goes on"
        assert not logs.recovery


def test_cut_is_damage_that_names_the_file_which_keeps_the_bytes(tmp_path, caplog):
    damaged_directory(tmp_path)
    caplog.set_level(logging.INFO)
    with stratalog.open(tmp_path, on_damage="cut") as logs:
        assert not logs.damage
        values(logs, "a")
        kept = [cut.kept_as for cut in logs.recovery[TopicPartition("a", 0)].cuts]
        assert len(kept) > 3
        for name in kept:
            assert sum(str(name) in str(error) for error in logs.damage) == 1
            assert sum(str(name) in line for line in caplog.messages) == 1
        assert {error.reason for error in logs.damage} == {"crc_mismatch"}
        assert {record.name for record in caplog.records} == {"stratalog.recovery"}
        assert "recovered 1 segments" in caplog.messages[-1]


def test_second_cut_at_the_same_place_keeps_what_the_first_has_kept(tmp_path):
    kept: dict[str, bytes] = {}
    for _ in range(2):
        damaged_directory(tmp_path / "new")
        (tmp_path / "a-0").mkdir(exist_ok=True)
        for path in (tmp_path / "new" / "a-0").iterdir():
            path.rename(tmp_path / "a-0" / path.name)
        (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        for path in (tmp_path / "new").glob("*"):
            path.rmdir() if path.is_dir() else path.unlink()
        with stratalog.open(tmp_path, on_damage="cut") as logs:
            values(logs, "a")
            for cut in logs.recovery[TopicPartition("a", 0)].cuts:
                assert cut.kept_as not in kept
                kept[str(cut.kept_as)] = Path(str(cut.kept_as)).read_bytes()
    assert len(kept) > 6
    assert all(Path(name).read_bytes() == data for name, data in kept.items())


def test_recover_opens_every_partition_and_lists_those_that_refuse(tmp_path):
    damaged_directory(tmp_path, ("a", "b"))
    with stratalog.open(tmp_path) as logs:
        logs.create("sound")
        with pytest.raises(DamagedLogError, match="on_damage='cut'"):
            logs.recover()
        assert [error.path for error in logs.damage] == [
            str(tmp_path / f"{topic}-0" / LOG) for topic in "ab"
        ]
        logs.append("sound", ["x"])
    with stratalog.open(tmp_path, on_damage="cut") as logs:
        recovered = logs.recover()
        cuts = {str(place): report.cuts for place, report in recovered.items()}
        assert cuts["a-0"]
        assert cuts["b-0"]
        assert cuts["sound-0"] == []
        assert recovered == logs.recovery
        assert len(logs.damage) == sum(len(report.cuts) for report in recovered.values())


def test_torn_tail_is_reported_and_is_not_damage(tmp_path, caplog):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    with (tmp_path / "a-0" / LOG).open("ab") as file:
        file.write(b"half a batch")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x"]
        (cut,) = logs.recovery[TopicPartition("a", 0)].cuts
        assert (cut.size_bytes, cut.from_offset, cut.kept_as) == (12, 1, None)
        assert logs.damage == ()
    assert "truncated 12 bytes" in caplog.text


def test_clean_shutdown_leaves_nothing_to_report(tmp_path, caplog):
    for _ in range(2):
        with stratalog.open(tmp_path) as logs, caplog.at_level(logging.INFO):
            if not logs.topics():
                logs.create("a")
            logs.append("a", ["x"])
            assert not logs.recover()
    assert caplog.messages == []
