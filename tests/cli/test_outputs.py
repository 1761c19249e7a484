"""Every output, read back by someone else's reader, holds the same records."""

from __future__ import annotations

import base64
import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.runner import run, spawn
from tests.judges.peers.golden import decoded, golden_set

SETS = ["v2-headers-and-nulls", "v2-timestamps", "v1-gzip", "v07-plain", "mixed", "v2-zstd"]


def bytes_of(text):
    return None if text is None else base64.b64decode(text, validate=True)


def segments(name):
    return [path for p in golden_set(name).partitions() for path in p.segments]


def record(row):
    """A line of ndjson as Arrow would have it."""
    values = decoded(row)
    values["headers"] = [{"key": key, "value": value} for key, value in values["headers"]]
    return values


@pytest.mark.parametrize("name", SETS)
def test_json_is_one_array_of_the_lines_of_ndjson(name):
    lines = run("cat", *segments(name)).rows()
    assert json.loads(run("cat", "-o", "json", *segments(name)).out) == lines


@pytest.mark.parametrize("name", SETS)
def test_csv_has_the_same_values(name):
    rows = run("cat", *segments(name)).rows()
    text = run("cat", "-o", "csv", *segments(name)).out.decode()
    assert text.endswith("\r\n")
    read = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert len(read) == len(rows)
    for line, row in zip(read, rows, strict=True):
        assert list(line) == list(row)
        for name in ("topic", "partition", "offset", "timestamp", "timestamp_type"):
            assert line[name] == str(row[name])
        assert line["key"] == (row["key"] or "")
        assert line["value"] == (row["value"] or "")
        assert json.loads(line["headers"]) == row["headers"]


def test_csv_tells_null_from_empty_to_those_who_look():
    out = run(
        "cat", "-o", "csv", "--columns", "key,value", *segments("v2-headers-and-nulls")
    ).out.decode()
    rows = run("cat", "--columns", "key,value", *segments("v2-headers-and-nulls")).rows()
    shown = {None: "", "": '""'}
    for line, row in zip(out.splitlines()[1:], rows, strict=True):
        assert line == ",".join(shown.get(row[name], row[name]) for name in ("key", "value"))


@pytest.mark.parametrize("name", SETS)
def test_parquet_and_arrow_have_the_same_records(name, tmp_path):
    rows = [record(row) for row in run("cat", *segments(name)).rows()]
    parquet = pq.read_table(io.BytesIO(run("cat", "-o", "parquet", *segments(name)).out))
    arrow = pa.ipc.open_stream(run("cat", "-o", "arrow", *segments(name)).out).read_all()
    assert arrow.column_names == parquet.column_names == list(rows[0])
    assert parquet.equals(arrow)
    assert arrow.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    for name in ("topic", "partition", "offset", "timestamp_type", "key", "value", "headers"):
        assert arrow[name].to_pylist() == [row[name] for row in rows]
    micros = arrow["timestamp"].cast(pa.int64()).to_pylist()
    limit = 2**63 // 1000
    for micro, row in zip(micros, rows, strict=True):
        assert micro == (row["timestamp"] * 1000 if abs(row["timestamp"]) < limit else None)


@pytest.mark.parametrize("output", ["parquet", "arrow", "ndjson", "json", "csv", "table"])
def test_pipe_and_file_get_the_same_bytes(output, tmp_path):
    out = tmp_path / "new"
    piped = spawn("cat", "-o", output, *segments("v2-plain"))
    written = spawn("cat", "-o", output, "--out", out, *segments("v2-plain"))
    assert (piped.code, written.code, written.out) == (0, 0, b"")
    assert out.read_bytes() == piped.out
    assert piped.out


@pytest.mark.parametrize("output", ["parquet", "arrow", "json", "csv"])
def test_output_before_damage_can_be_read(output):
    path = golden_set("v2-torn").partitions()[1].segments[1]
    done = run("cat", "-o", output, path)
    assert done.code == 1
    rows = {
        "parquet": lambda: pq.read_table(io.BytesIO(done.out)).num_rows,
        "arrow": lambda: pa.ipc.open_stream(done.out).read_all().num_rows,
        "json": lambda: len(json.loads(done.out)),
        "csv": lambda: len(done.out.splitlines()) - 1,
    }[output]()
    assert rows == 8


@pytest.mark.parametrize("output", ["parquet", "arrow", "json", "ndjson", "csv", "table"])
def test_empty_file_is_an_empty_result(output, tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    for verb in ("cat", "count", "verify"):
        assert run(verb, "-o", output, path).code == 0
    assert json.loads(run("cat", "-o", "json", path).out) == []
    assert pq.read_table(io.BytesIO(run("cat", "-o", "parquet", path).out)).num_rows == 0


@pytest.mark.parametrize("verb", ["count", "verify"])
def test_rows_of_the_other_verbs_agree_in_every_output(verb):
    paths = segments("v2-torn")
    rows = run(verb, *paths).rows()
    assert [row["path"] for row in rows] == [str(path) for path in paths]
    assert json.loads(run(verb, "-o", "json", *paths).out) == rows
    tables = [
        pq.read_table(io.BytesIO(run(verb, "-o", "parquet", *paths).out)),
        pa.ipc.open_stream(run(verb, "-o", "arrow", *paths).out).read_all(),
    ]
    text = run(verb, "-o", "csv", *paths).out.decode()
    read = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    for number, row in enumerate(rows):
        assert {k: v for k, v in read[number].items() if k != "findings"} == {
            k: "" if v is None else str(v) for k, v in row.items() if k != "findings"
        }
        for table in tables:
            flat = {**row, "findings": json.dumps(row["findings"])} if "findings" in row else row
            assert table.to_pylist()[number] == flat


def test_columns_are_shown_in_the_order_asked_for():
    names = (
        "position,offset,base_offset,producer_id,producer_epoch,sequence,leader_epoch,codec,"
        "is_control,is_transactional,timestamp,timestamp_ms,partition"
    )
    paths = segments("v2-transactions")
    rows = run("cat", "--columns", names, *paths).rows()
    assert list(rows[0]) == names.split(",")
    arrow = pa.ipc.open_stream(run("cat", "-o", "arrow", "--columns", names, *paths).out).read_all()
    assert arrow.column_names == names.split(",")
    kept = [name for name in arrow.column_names if name != "timestamp"]
    assert arrow.select(kept).to_pylist() == [{k: row[k] for k in kept} for row in rows]


def test_folder_that_is_no_partition_gives_null(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segments("v2-plain")[0].read_bytes())
    row, *_ = run("cat", "-n", "1", path).rows()
    assert (row["topic"], row["partition"]) == (None, None)
    assert run("cat", "-n", "1", "-o", "csv", path).out.splitlines()[1].startswith(b",,0,")
    assert run("count", path).rows()[0]["topic"] is None


def test_percent_signs_and_quotes_in_a_path_stay_what_they_are(tmp_path):
    folder = tmp_path / 'a%s,"b" é'
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(segments("v2-plain")[0].read_bytes())
    assert run("count", path).rows()[0]["path"] == str(path)
    text = run("count", "-o", "csv", path).out.decode()
    assert next(csv.DictReader(io.StringIO(text, newline="")))["path"] == str(path)
