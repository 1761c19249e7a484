"""stratalog.scan: what goes in, what Polars, DuckDB and pyarrow take, bounds, files, endings."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import stratalog
from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import Codec, Ending, Reason
from stratalog.storage.segment import log_file
from tests.inspect.logs import Unmappable, batch, flipped, segment

BATCHES = 12


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Three segments of four batches of three records; timestamps 1000 to 1002 in every batch."""
    return [
        segment(tmp_path, 12 * n, b"".join(batch(12 * n + 3 * i) for i in range(4)))
        for n in range(3)
    ]


@pytest.mark.parametrize("views", [False, True])
def test_pyarrow_polars_and_duckdb_take_a_scan_directly(paths: list[str], views: bool) -> None:
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    s = stratalog.scan(paths, views=views)
    table = pa.table(s)
    assert table.schema == s.schema
    assert table["offset"].to_pylist() == list(range(36))
    frame = polars.DataFrame(s)
    assert frame["offset"].to_list() == list(range(36))
    assert frame["value"][0] == b"v" * 20
    assert frame["key"][1] == b"k1"
    (row,) = duckdb.sql(
        'select count(*), max("offset"), min(octet_length(value)) from s'
    ).fetchall()
    assert row == (36, 35, 20)
    assert s.to_table().num_rows == 36  # it runs anew each time


def test_batches_are_record_batches_of_the_schema_and_of_batch_rows(paths: list[str]) -> None:
    s = stratalog.scan(paths, batch_rows=5)
    batches = list(s)
    assert all(isinstance(each, pa.RecordBatch) and each.schema == s.schema for each in batches)
    assert max(each.num_rows for each in batches) <= 5
    assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(36))


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize(
    ("start", "end"), [(0, 36), (5, 20), (12, 24), (35, None), (None, 1), (9, 9)]
)
def test_offset_bounds(paths: list[str], views: bool, start: int | None, end: int | None) -> None:
    table = stratalog.scan(paths, start=start, end=end, views=views).to_table()
    assert table["offset"].to_pylist() == list(range(36))[start:end]


def test_whole_files_and_batches_are_left_out_unread(paths: list[str]) -> None:
    s = stratalog.scan(paths, start=13, end=17)
    assert s.to_table()["offset"].to_pylist() == [13, 14, 15, 16]
    assert [Path(end.path).name for end in s.ends] == ["00000000000000000012.log"]
    assert s.skipped_batches == 2  # of four


def test_time_bounds_take_milliseconds_and_datetimes(paths: list[str]) -> None:
    table = stratalog.scan(paths, start_time=1001, end_time=1002).to_table()
    assert table["offset"].to_pylist() == list(range(1, 36, 3))
    moment = datetime(1970, 1, 1, 0, 0, 1, 2000, tzinfo=UTC)
    table = stratalog.scan(paths, start_time=moment).to_table()
    assert table["offset"].to_pylist() == list(range(2, 36, 3))
    with pytest.raises(UsageError, match="no time zone"):
        stratalog.scan(paths, start_time=datetime(2024, 1, 1))  # noqa: DTZ001


def test_columns_come_in_the_order_asked_for(paths: list[str]) -> None:
    s = stratalog.scan(paths[0], columns=["value", "partition", "topic", "offset", "codec"])
    assert s.schema.names == ["value", "partition", "topic", "offset", "codec"]
    row = s.to_table().slice(1, 1).to_pylist()[0]
    assert row == {
        "value": b"v" * 20,
        "partition": 0,
        "topic": "orders",
        "offset": 1,
        "codec": "none",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"columns": ["offset", "nonsense"]},
            "no column 'nonsense': there are topic, partition, off",
        ),
        ({"columns": ["offset", "offset"]}, "named twice"),
        ({"batch_rows": 0}, "at least 1"),
        ({"max_decompressed_bytes": 2**31}, "lies between"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    options: dict[str, object], said: str, paths: list[str]
) -> None:
    with pytest.raises(UsageError, match=said):
        stratalog.scan(paths, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no file"):
        stratalog.scan([])


def test_missing_files_folders_and_devices_are_storage_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.log", tmp_path, Path(os.devnull)):
        with pytest.raises(StorageError, match=str(path)):
            stratalog.scan(path).to_table()


def test_a_torn_tail_ends_the_last_segment_quietly(paths: list[str]) -> None:
    with Path(paths[2]).open("ab") as file:
        file.write(batch(36)[:40])
    s = stratalog.scan(paths)
    assert s.to_table().num_rows == 36
    assert (s.ends[-1].pause.ending, s.ends[-1].unread_bytes) == (Ending.INCOMPLETE, 40)


def test_a_torn_tail_in_an_earlier_segment_is_damage(paths: list[str]) -> None:
    with Path(paths[0]).open("ab") as file:
        file.write(batch(12)[:40])
    with pytest.raises(CorruptionError) as raised:
        stratalog.scan(paths).to_table()
    assert (raised.value.reason, raised.value.path) == ("short_tail", paths[0])


def test_damage_is_named_with_file_position_and_advice_after_what_stands_before(
    paths: list[str],
) -> None:
    data = Path(paths[1]).read_bytes()
    at = len(batch(0))
    Path(paths[1]).write_bytes(flipped(data, at + 70))
    seen: list[int] = []

    def read() -> None:
        for each in stratalog.scan(paths, columns=["offset"]):
            seen.extend(each["offset"].to_pylist())

    with pytest.raises(CorruptionError) as raised:
        read()
    assert seen == list(range(15))
    error = raised.value
    assert (error.path, error.position, error.reason) == (paths[1], at, "crc_mismatch")
    assert error.advice
    assert f"{paths[1]} at byte {at}" in str(error)
    unchecked = stratalog.scan(paths, check_crc=False).to_table()
    assert unchecked.num_rows == 36


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, batch(0, count=1, size=4 << 20, codec=Codec.ZSTD))
    assert stratalog.scan(path).to_table().num_rows == 1
    with pytest.raises(stratalog.LimitExceededError, match="max_decompressed_bytes"):
        stratalog.scan(path, max_decompressed_bytes=1 << 20).to_table()


def test_a_batch_above_max_batch_bytes_is_refused_unread(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, batch(0, count=3, size=1 << 20))
    with pytest.raises(stratalog.LimitExceededError, match="max_batch_bytes"):
        stratalog.scan(path, max_batch_bytes=1 << 20).to_table()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_file_of_several_windows_reads_the_same_mapped_and_read(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MAPPED_SIZE", 4 << 20)
    data = b"".join(batch(3 * n, size=9000 + n, codec=codec) for n in range(1000))
    if codec == Codec.LZ4:
        data = b"".join(batch(3 * n, size=20, codec=codec) for n in range(12_000))
    path = segment(tmp_path, 0, data)
    assert len(data) > 1 << 20
    assert codec != Codec.NONE or len(data) > 3 * log_file.MAPPED_SIZE
    mapped = stratalog.scan(path).to_table()
    read = stratalog.scan(path, file_system=Unmappable()).to_table()
    assert mapped.num_rows == (3000 if codec == Codec.NONE else 36_000)
    assert mapped.equals(read)


CUT = """
import os, sys
import stratalog
from stratalog.storage.files import filesystem
from stratalog.storage.segment import log_file

log_file.MAPPED_SIZE = 8 << 20
path, keep = sys.argv[1], int(sys.argv[2])
plain = filesystem.OsReadableFile.map
maps = 0

def map_and_cut(self, position, size, *, reads_all=False):
    # The file's owner cuts it short right after the second window was mapped.
    global maps
    maps += 1
    region = plain(self, position, size)
    if maps == 2:
        os.truncate(path, keep)
    return region

filesystem.OsReadableFile.map = map_and_cut
s = stratalog.scan(path, columns=["offset", "value"])
rows = sum(batch.num_rows for batch in s)
end = s.ends[-1]
print(rows, end.pause.position, end.pause.ending.name)
"""


def test_a_file_cut_short_while_it_is_scanned_ends_in_a_torn_tail(tmp_path: Path) -> None:
    """In a process of its own: without the guard, SIGBUS would end it."""
    one = len(batch(0, size=9000))
    path = segment(tmp_path, 0, b"".join(batch(3 * n, size=9000) for n in range(1000)))
    keep = 600 * one + 100
    assert 8 << 20 < keep < 16 << 20  # in the second window
    done = subprocess.run(
        [sys.executable, "-c", CUT, path, str(keep)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.split() == ["1800", str(600 * one), "INCOMPLETE"]


def test_nothing_is_written_by_a_scan(paths: list[str]) -> None:
    before = {path: (Path(path).read_bytes(), Path(path).stat().st_mtime_ns) for path in paths}
    stratalog.scan(paths, views=True).to_table()
    stratalog.scan(paths).to_table()
    after = {path: (Path(path).read_bytes(), Path(path).stat().st_mtime_ns) for path in paths}
    assert before == after
    assert sorted(map(str, Path(paths[0]).parent.iterdir())) == paths


def test_an_empty_file_and_a_zero_tail_are_no_errors(tmp_path: Path) -> None:
    assert stratalog.scan(segment(tmp_path, 0, b"")).to_table().num_rows == 0
    s = stratalog.scan(segment(tmp_path, 0, batch(0) + bytes(3 << 20)))
    assert s.to_table().num_rows == 3
    assert s.ends[-1].pause.reason == Reason.ZERO_TAIL
