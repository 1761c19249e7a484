"""The eleven load outcomes that Kafka's own loader gave, one test each: bases, end, recovery point, start of
the log, epochs, and every file with its size.

The sizes are those after closing: while a log is open its active indexes are preallocated, which the first
test looks at. Where we differ on purpose (a damaged middle is refused, not cut) both ways are tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import DamagedLogError
from stratalog.storage.epochs.leader_epochs import EpochEntry
from stratalog.storage.partition_log import PartitionLog
from tests.storage.logs import (
    SIZE,
    bases,
    epoch_text,
    files,
    flip,
    name,
    offsets,
    open_log,
    write_segment,
    write_segments,
)

FULL = {"index": 10485760, "timeindex": 10485756}
WHOLE = 5 * SIZE


def state(log: PartitionLog) -> tuple[list[int], int, int, int]:
    """Bases, end, recovery point, start."""
    return bases(log), log.log_end, log.recovery_point, log.log_start


def segment_files(*at: int, size: int = WHOLE, time: int = 12) -> dict[str, int]:
    return {
        f"{base}.{kind}": length
        for base in at
        for kind, length in (("log", size), ("index", 0), ("timeindex", time))
    }


def snapshots(*at: int) -> dict[str, int]:
    return {f"{offset}.snapshot": 10 for offset in at}


EPOCHS = "leader-epoch-checkpoint"


def test_an_empty_folder_gets_one_empty_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, is_clean=True)
    assert state(log) == ([0], 0, 0, 0)
    assert files(tmp_path) == {
        "0.log": 0, "0.index": FULL["index"], "0.timeindex": FULL["timeindex"], EPOCHS: 0,
    }  # fmt: skip
    log.close()
    assert files(tmp_path) == {**segment_files(0, size=0, time=0), EPOCHS: 0}


def test_an_empty_folder_with_a_log_start_begins_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, is_clean=True, log_start=50)
    assert state(log) == ([50], 50, 0, 50)
    log.close()
    assert files(tmp_path) == {**segment_files(50, size=0, time=0), EPOCHS: 0, **snapshots(50)}


def test_a_clean_log_without_snapshots_gets_those_of_its_last_two_segments(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5)
    log = open_log(tmp_path, is_clean=True)
    assert state(log) == ([0, 5], 10, 10, 0)
    assert log.epochs == ()  # not scanned
    assert log.report.recovered_segments == []
    log.close()
    assert files(tmp_path) == {**segment_files(0, 5), EPOCHS: 0, **snapshots(5, 10)}


def test_a_clean_log_that_is_loaded_again_is_not_rewritten(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5)
    open_log(tmp_path, is_clean=True).close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    log = open_log(tmp_path, is_clean=True, recovery_point=10)
    assert state(log) == ([0, 5], 10, 10, 0)
    log.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # Only the active segment's indexes grew, and were trimmed again.
    touched = {name for name, time in times.items() if (tmp_path / name).stat().st_mtime_ns != time}
    assert touched <= {name(5, ".index"), name(5, ".timeindex")}


def test_an_unclean_log_is_scanned_and_its_recovery_point_stays(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5)
    log = open_log(tmp_path)
    assert state(log) == ([0, 5], 10, 0, 0)
    assert log.epochs == (EpochEntry(3, 0),)
    assert log.report.recovered_segments == [0, 5]
    assert log.report.scanned_bytes == 2 * WHOLE
    assert log.report.cuts == []
    log.close()
    assert epoch_text(tmp_path) == "0\n1\n3 0\n"
    assert files(tmp_path) == {**segment_files(0, 5), EPOCHS: 8, **snapshots(5, 10)}


def test_a_replacement_that_was_not_renamed_to_the_end_is_undone(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5, 10)
    write_segment(tmp_path, 0, [0, 4], stage=".cleaned")
    write_segment(tmp_path, 5, [6], stage=".swap")
    log = open_log(tmp_path)
    assert state(log) == ([0, 5, 10], 15, 0, 0)
    log.close()
    assert files(tmp_path) == {**segment_files(0, 5, 10), EPOCHS: 8, **snapshots(5, 10, 15)}


def test_a_replacement_that_was_complete_is_finished(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5, 10)
    write_segment(tmp_path, 0, [2, 9], stage=".swap")
    (tmp_path / name(5, ".snapshot")).write_bytes(bytes.fromhex("000148674bc700000000"))
    (tmp_path / name(3, ".log.deleted")).write_bytes(b"gone")
    log = open_log(tmp_path)
    assert state(log) == ([0, 10], 15, 0, 0)
    assert log.epochs == (EpochEntry(3, 2),)
    assert offsets(log) == [2, 9, 10, 11, 12, 13, 14]
    log.close()
    assert files(tmp_path) == {
        **segment_files(0, size=2 * SIZE), **segment_files(10), EPOCHS: 8, **snapshots(10, 15),
    }  # fmt: skip


def damaged(folder: Path) -> Path:
    write_segments(folder, 0, 5, 10)
    flip(folder / name(5, ".log"), 2 * SIZE + 70)
    return folder


def test_a_flipped_bit_in_the_middle_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    damaged(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".log"}
    with pytest.raises(DamagedLogError) as caught:
        open_log(tmp_path)
    error = caught.value
    assert error.reason == "crc_mismatch"
    assert error.path == str(tmp_path / name(5, ".log"))
    assert error.position == 2 * SIZE
    assert error.advice is not None
    assert "on_damage='cut'" in error.advice
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".log"}
    assert after == before
    assert not list(tmp_path.glob("*.deleted"))


def test_a_flipped_bit_in_the_middle_is_cut_where_that_is_asked_for(tmp_path: Path) -> None:
    damaged(tmp_path)
    log = open_log(tmp_path, on_damage="cut")
    assert state(log) == ([0, 5], 7, 0, 0)
    whole, tail = log.report.cuts
    assert (tail.position, tail.size_bytes, tail.from_offset) == (2 * SIZE, 3 * SIZE, 7)
    assert (whole.position, whole.size_bytes, whole.from_offset) == (0, 5 * SIZE, 10)
    assert log.report.dropped_segments == [10]
    log.close()
    kept = [Path(cut.kept_as or "") for cut in (tail, whole)]
    assert [each.stat().st_size for each in kept] == [3 * SIZE, 5 * SIZE]
    index_files = {name: size for name, size in segment_files(10).items() if ".log" not in name}
    assert files(tmp_path, kept=[each.name for each in kept]) == {
        **segment_files(0), **segment_files(5, size=2 * SIZE), EPOCHS: 8, **snapshots(5, 7),
        **{f"{name}.deleted": size for name, size in index_files.items()},
    }  # fmt: skip


def test_damage_below_the_recovery_point_is_not_looked_for(tmp_path: Path) -> None:
    damaged(tmp_path)
    log = open_log(tmp_path, recovery_point=10)
    assert state(log) == ([0, 5, 10], 15, 10, 0)
    assert log.epochs == (EpochEntry(3, 10),)
    assert log.report.recovered_segments == [10]
    log.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_that_ends_below_its_start_begins_anew(tmp_path: Path, is_clean: bool) -> None:
    write_segments(tmp_path, 0)
    (tmp_path / EPOCHS).write_text("0\n1\n3 0\n")
    log = open_log(tmp_path, is_clean=is_clean, log_start=100)
    assert state(log)[:2] == ([100], 100)
    assert log.log_start == 100
    assert log.epochs == ()
    assert log.report.dropped_segments == [0]
    log.close()
    assert epoch_text(tmp_path) == "0\n0\n"
    assert files(tmp_path) == {
        **{f"{name}.deleted": size for name, size in segment_files(0).items()},
        **segment_files(100, size=0, time=0), EPOCHS: 4, **snapshots(100),
    }  # fmt: skip


def test_a_missing_index_has_its_segment_recovered_and_an_orphan_goes(tmp_path: Path) -> None:
    write_segments(tmp_path, 0)
    (tmp_path / name(0, ".index")).unlink()
    (tmp_path / name(7, ".index")).write_bytes(b"")
    log = open_log(tmp_path, is_clean=True)
    assert state(log) == ([0], 5, 5, 0)
    assert log.epochs == (EpochEntry(3, 0),)
    assert log.report.deleted_files == [name(7, ".index")]
    log.close()
    assert files(tmp_path) == {**segment_files(0), EPOCHS: 8, **snapshots(5)}


# Not in the table, and close to it.


def test_zeros_behind_a_clean_stop_make_it_unclean(tmp_path: Path) -> None:
    """Kafka refuses to start on such a folder; it recovers the same one without the marker."""
    write_segments(tmp_path, 0, 5)
    path = tmp_path / name(5, ".log")
    path.write_bytes(path.read_bytes() + bytes(500))
    log = open_log(tmp_path, is_clean=True, recovery_point=10)
    assert state(log) == ([0, 5], 10, 10, 0)
    (cut,) = log.report.cuts
    assert (cut.position, cut.size_bytes, cut.from_offset, cut.kept_as) == (WHOLE, 500, 10, None)
    assert path.stat().st_size == WHOLE
    log.close()


def test_an_interrupted_rename_of_a_replacement_is_finished(tmp_path: Path) -> None:
    """The data file has its final name already, the indexes not yet."""
    write_segments(tmp_path, 0, 5)
    for kind in (".index", ".timeindex"):
        (tmp_path / name(0, kind)).rename(tmp_path / name(0, f"{kind}.swap"))
    log = open_log(tmp_path, is_clean=True)
    assert log.report.recovered_segments == []
    log.close()
    assert files(tmp_path) == {**segment_files(0, 5), EPOCHS: 0, **snapshots(5, 10)}


def test_a_missing_index_in_the_middle_does_not_let_the_middle_be_cut(tmp_path: Path) -> None:
    """The segment is recovered though the stop was clean; what is wrong in it is still not cut."""
    write_segments(tmp_path, 0, 5, 10)
    (tmp_path / name(5, ".index")).unlink()
    path = tmp_path / name(5, ".log")
    path.write_bytes(path.read_bytes()[: 4 * SIZE + 10])
    for how in (
        {"is_clean": True},
        {"is_clean": True, "recovery_point": 15},
        {"recovery_point": 15},
    ):
        with pytest.raises(DamagedLogError, match=r"follow|below the recovery point"):
            open_log(tmp_path, **how)
    assert path.stat().st_size == 4 * SIZE + 10


def test_unknown_files_are_told_and_left_alone(tmp_path: Path) -> None:
    write_segments(tmp_path, 0)
    for strange in ("notes.txt", "0.log", name(0, ".log.bak"), name(3, ".checkpoint.deleted")):
        (tmp_path / strange).write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    log = open_log(tmp_path)
    assert set(log.report.unknown_files) == {
        "notes.txt", "0.log", name(0, ".log.bak"), name(3, ".checkpoint.deleted"),
    }  # fmt: skip
    log.close()
    for strange in log.report.unknown_files:
        assert (tmp_path / strange).read_bytes() == b"mine"


def test_damaged_epochs_are_read_from_the_log(tmp_path: Path) -> None:
    write_segments(tmp_path, 0, 5)
    (tmp_path / EPOCHS).write_text("0\n2\nnonsense\n")
    log = open_log(tmp_path, is_clean=True)
    assert log.epochs == (EpochEntry(3, 0),)
    log.close()
    assert epoch_text(tmp_path) == "0\n1\n3 0\n"
