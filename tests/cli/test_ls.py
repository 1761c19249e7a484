"""``stratalog ls``: topics, partitions and segments, with exact counts, bytes and times."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment
from tests.judges.peers.golden import golden_set, golden_sets

SETS = [golden for golden in golden_sets() if not golden.damaged]


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_a_row_a_partition_is_what_kafka_says_of_it(golden):
    done = run("ls", *golden.log_dirs)
    assert done.code == 0
    records: dict[tuple[str, int], int] = {}
    for row in golden.expected():
        place = row["topic"], row["partition"]
        records[place] = records.get(place, 0) + 1
    assert [list(row.values())[:6] for row in done.rows()] == [
        [
            p.topic,
            p.partition,
            len(p.segments),
            records.get((p.topic, p.partition), 0),
            golden.log_start_offset(p.topic, p.partition),
            golden.log_end_offset(p.topic, p.partition),
        ]
        for p in golden.partitions()
    ]
    sizes = {p.topic: 0 for p in golden.partitions()}
    for p in golden.partitions():
        sizes[p.topic] += sum(path.stat().st_size for path in p.segments)
    topics = run("ls", "--by", "topic", *golden.log_dirs).rows()
    assert {row["topic"]: row["log_bytes"] for row in topics} == sizes
    assert sum(row["records"] for row in topics) == len(golden.expected())


def test_a_row_a_segment():
    golden = golden_set("v2-plain")
    rows = run("ls", "--by", "segment", golden.path).rows()
    (partition,) = golden.partitions()
    assert [row["path"] for row in rows] == [str(path) for path in partition.segments]
    assert [row["first_offset"] for row in rows] == [int(path.stem) for path in partition.segments]
    expected = golden.expected()
    for row in rows:
        times = [
            each["timestamp"]
            for each in expected
            if row["first_offset"] <= each["offset"] <= row["last_offset"]
        ]
        assert (row["records"], row["last_time"]) == (len(times), max(times))
        assert row["first_time"] == times[0]


def test_zeros_that_were_set_aside_are_no_bytes_of_the_log():
    golden = golden_set("v2-preallocated")
    done = run("ls", golden.path)
    assert done.code == 0
    (row,) = done.rows()
    assert (row["status"], row["records"], row["log_bytes"]) == ("torn", 140, 27362)
    assert "only zeros follow" in done.err


def test_damage_shows_in_the_row_and_in_the_exit_code(tmp_path):
    segment(tmp_path, 0, batch(0) + flipped(batch(3), 16, 6))
    segment(tmp_path, 6, batch(6))
    segment(tmp_path, 0, batch(0), partition="sound-0")
    for by, states in [
        ("partition", ["damaged", "ok"]),
        ("topic", ["damaged", "ok"]),
        ("segment", ["damaged", "ok", "ok"]),
    ]:
        done = run("ls", "--by", by, tmp_path)
        assert done.code == 1
        assert [row["status"] for row in done.rows()] == states
        assert "unknown_magic" in done.err


def test_no_records_opens_nothing(tmp_path):
    segment(tmp_path, 7, b"not a log at all")
    segment(tmp_path, 9, batch(9))
    done = run("ls", "--no-records", tmp_path)
    size = 16 + len(batch(9))
    assert (done.code, done.err) == (0, "")
    assert done.rows() == [
        {"topic": "orders", "partition": 0, "segments": 2, "start_offset": 7, "log_bytes": size}
    ]
    by_topic = run("ls", "--no-records", "--by", "topic", tmp_path).rows()
    assert by_topic == [{"topic": "orders", "partitions": 1, "segments": 2, "log_bytes": size}]
    by_segment = run("ls", "--no-records", "--by", "segment", tmp_path).rows()
    assert [row["log_bytes"] for row in by_segment] == [16, len(batch(9))]


def test_every_output_has_the_same_rows():
    path = golden_set("v2-many-partitions").path
    rows = run("ls", path).rows()
    assert json.loads(run("ls", "-o", "json", path).out) == rows
    text = run("ls", "-o", "csv", path).out.decode()
    read = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    arrow = pa.ipc.open_stream(run("ls", "-o", "arrow", path).out).read_all()
    parquet = pq.read_table(io.BytesIO(run("ls", "-o", "parquet", path).out))
    assert arrow.schema.field("first_time").type == pa.timestamp("ms", tz="UTC")
    for table in (arrow, parquet):
        plain = table.set_column(
            table.column_names.index("first_time"),
            "first_time",
            table["first_time"].cast(pa.int64()),
        )
        plain = plain.set_column(
            table.column_names.index("last_time"), "last_time", table["last_time"].cast(pa.int64())
        )
        assert plain.to_pylist() == rows


def test_what_is_not_known_is_a_note_and_no_error(tmp_path):
    segment(tmp_path, 0, batch(0))
    (tmp_path / "orders-0" / "notes.txt").touch()
    (tmp_path / "a\x1b[31m").mkdir()
    done = run("ls", tmp_path)
    assert done.code == 0
    assert done.err.splitlines() == [
        f"stratalog: note: {tmp_path}: unknown files, ignored: a\\x1b[31m",
        f"stratalog: note: {tmp_path}/orders-0: unknown files, ignored: notes.txt",
    ]


def test_files_and_folders_may_be_mixed(tmp_path):
    loose = tmp_path / "loose.bin"
    loose.write_bytes(batch(40))
    segment(tmp_path / "..", 0, batch(0), partition=f"{tmp_path.name}/orders-0")
    rows = run("ls", loose, tmp_path / "orders-0").rows()
    assert [(row["topic"], row["start_offset"], row["end_offset"]) for row in rows] == [
        (None, 40, 43),
        ("orders", 0, 3),
    ]


def test_an_unreadable_segment_does_not_hide_the_others(tmp_path, monkeypatch):
    import os

    good = segment(tmp_path, 0, batch(0))
    bad = segment(tmp_path, 3, batch(3))
    plain = os.open

    def refusing(path, *rest, **options):
        if path == bad:
            raise PermissionError(13, "Permission denied")
        return plain(path, *rest, **options)

    monkeypatch.setattr(os, "open", refusing)
    done = run("ls", "--by", "segment", tmp_path)
    assert done.code == 3
    assert [row["path"] for row in done.rows()] == [good]
    assert f"{bad}: permission denied" in done.err
    assert Path(bad).exists()
