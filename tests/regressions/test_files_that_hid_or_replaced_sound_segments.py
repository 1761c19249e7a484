"""A damaged replacement took the place of sound segments; a link or an empty file hid records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError, DamagedLogError, StorageError
from tests.storage.logs import SIZE, name, offsets, open_log, small, write_segment, write_segments
from tests.storage.wide_segments import content


def size_wrong(data: bytearray) -> bytes:
    data[8:12] = b"\0\0\0\1"
    return bytes(data)


def record_wrong(data: bytearray) -> bytes:
    data[70] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        size_wrong,
        record_wrong,
        lambda data: bytes(data[: SIZE + 30]),
        lambda data: bytes(len(data)),
    ],
    ids=["size", "record", "torn", "zeros"],
)
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_damaged_replacement_takes_nobodys_place(
    tmp_path: Path, damage: Callable[[bytearray], bytes], is_clean: bool
) -> None:
    folder = write_segments(tmp_path / "t-0", 0, 5, 10)
    (folder / name(0, ".log.swap")).write_bytes(damage(bytearray(small(2) + small(9))))
    before = content(folder)
    with pytest.raises(DamagedLogError, match=r"log\.swap.*move it away"):
        open_log(folder, is_clean=is_clean, recovery_point=15)
    assert content(folder) == before
    (folder / name(0, ".log.swap")).unlink()
    log = open_log(folder, is_clean=is_clean, recovery_point=15)
    assert offsets(log) == list(range(15))
    log.close()


def test_a_replacement_that_readers_cannot_read_is_no_empty_one(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", 0, 5, 10)
    (folder / name(5, ".log.swap")).write_bytes(bytes(500))
    with (
        stratalog.open(str(tmp_path), read_only=True) as logs,
        pytest.raises(CorruptionError, match=r"log\.swap"),
    ):
        logs.read("t").to_table()
    with pytest.raises(CorruptionError, match=r"log\.swap"):
        stratalog.scan(str(tmp_path)).to_table()


@pytest.mark.parametrize("base", [0, 5])
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_data_file_that_is_a_link_is_refused_and_stays(
    tmp_path: Path, base: int, is_clean: bool
) -> None:
    """It was not seen: the log ended before it, and its offsets were given out again."""
    folder = write_segments(tmp_path / "t-0", 0, 5)
    path, target = folder / name(base, ".log"), tmp_path / "moved.log"
    path.rename(target)
    path.symlink_to(target)
    before = content(folder)
    with pytest.raises(StorageError, match="put the segment itself there"):
        open_log(folder, is_clean=is_clean, recovery_point=10)
    with (
        stratalog.open(str(tmp_path), read_only=True) as logs,
        pytest.raises(StorageError, match="put the segment itself there"),
    ):
        logs.read("t").to_table()
    assert path.is_symlink()
    assert content(folder) == before


@pytest.mark.parametrize("blank", [b"", bytes(5000)])
def test_a_segment_that_was_given_up_hides_nothing_from_readers(
    tmp_path: Path, blank: bytes
) -> None:
    """The writer knows such files; who only reads took the log to end where they begin."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    write_segment(folder, 0, range(10))
    (folder / name(5, ".log")).write_bytes(blank)
    before = content(folder)
    with stratalog.open(str(tmp_path), read_only=True) as logs:
        assert logs.latest("t", 0) == 10
        assert [record.offset for record in logs.read("t").records()] == list(range(10))
        assert [record.offset for record in logs.read("t", start=7).records()] == [7, 8, 9]
    assert content(folder) == before
