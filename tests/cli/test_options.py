"""Bounds, limits and names, as they are typed."""

from __future__ import annotations

import pytest

from tests.cli.runner import run
from tests.judges.peers.golden import golden_set

SEGMENTS = golden_set("v2-plain").partitions()[0].segments


def offsets(*options, paths=SEGMENTS):
    done = run("cat", *options, *paths)
    assert done.code == 0, done.err
    return [row["offset"] for row in done.rows()]


@pytest.mark.parametrize("limit", [0, 1, 7, 151, 152, 300, 1000])
def test_limit(limit):
    assert offsets("-n", limit) == list(range(min(limit, 300)))


@pytest.mark.parametrize("output", ["json", "csv", "arrow", "parquet", "table"])
def test_limit_holds_for_every_output(output):
    import io
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    out = run("cat", "-n", "20", "-o", output, *SEGMENTS).out
    rows = {
        "json": lambda: len(json.loads(out)),
        "csv": lambda: len(out.splitlines()) - 1,
        "table": lambda: len(out.splitlines()) - 1,
        "arrow": lambda: pa.ipc.open_stream(out).read_all().num_rows,
        "parquet": lambda: pq.read_table(io.BytesIO(out)).num_rows,
    }
    assert rows[output]() == 20


def test_offset_bounds():
    assert offsets("--start", 100, "--end", 200) == list(range(100, 200))
    assert offsets("--start", 290) == list(range(290, 300))
    assert offsets("--start", 300) == []


def test_time_bounds_as_milliseconds_and_iso():
    rows = run("cat", *SEGMENTS).rows()
    middle = sorted(row["timestamp"] for row in rows)[150]
    below = [row["offset"] for row in rows if row["timestamp"] < middle]
    above = [row["offset"] for row in rows if row["timestamp"] >= middle]
    assert offsets("--end-time", middle) == below
    assert offsets("--start-time", middle) == above
    assert above
    assert below
    from datetime import UTC, datetime, timedelta, timezone

    time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=middle)
    for written in (
        time.isoformat(),
        time.isoformat().replace("+00:00", "Z"),
        time.replace(tzinfo=None).isoformat(),
        time.astimezone(timezone(timedelta(hours=2))).isoformat(),
    ):
        assert offsets("--start-time", written) == above


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cat", "--columns", "offset,colour", *SEGMENTS], "no column 'colour': there are topic,"),
        (["cat", "--columns", "offset,offset", *SEGMENTS], "named twice"),
        (["cat", "--columns", "", *SEGMENTS], "empty column name"),
        (["cat", "--start-time", "yesterday", *SEGMENTS], "is not a time"),
        (["cat", "--max-decompressed-bytes", "10XB", *SEGMENTS], "is not a size"),
        (["cat", "--max-decompressed-bytes", "3GiB", *SEGMENTS], "max_decompressed_bytes"),
        (["cat", "-n", "-1", *SEGMENTS], "-1 is not in the range"),
        (["cat", "-o", "xml", *SEGMENTS], "'xml' is not one of"),
        (["cat"], "Missing argument"),
        (["cut", *SEGMENTS], "No such command"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_why(arguments, message):
    done = run(*arguments)
    assert done.code == 2
    assert message in done.err
    assert done.out == b""


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("1000", 1000),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("64k", 65536),
        ("1MB", 10**6),
        ("1g", 1 << 30),
    ],
)
def test_sizes(typed, size):
    from stratalog.cli.options import SIZE

    assert SIZE.convert(typed, None, None) == size


def test_decompression_limit_is_held():
    paths = golden_set("v2-zstd").partitions()[0].segments
    done = run("cat", "--max-decompressed-bytes", "100", *paths)
    assert done.code == 1
    assert "decompressed_too_large" in done.err
    assert "max_decompressed_bytes" in done.err
    assert run("count", "--max-decompressed-bytes", "100", *paths).code == 0


def test_batch_limit_is_held():
    done = run("count", "--max-batch-bytes", "1KiB", *SEGMENTS)
    assert done.code == 1
    assert "size_too_large" in done.err


def test_suffix_of_out_chooses_the_output(tmp_path):
    run("cat", "--out", tmp_path / "a.csv", "-n", "1", *SEGMENTS)
    assert (tmp_path / "a.csv").read_bytes().startswith(b"topic,partition,")
    run("cat", "--out", tmp_path / "a.parquet", "-n", "1", *SEGMENTS)
    assert (tmp_path / "a.parquet").read_bytes().startswith(b"PAR1")


def test_out_never_replaces_a_file(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(SEGMENTS[0].read_bytes())
    done = run("cat", "--out", path, path)
    assert done.code == 2
    assert "already exists" in done.err
    assert path.read_bytes() == SEGMENTS[0].read_bytes()
    assert run("cat", "--out", tmp_path / "no" / "such" / "folder", path).code == 3


def test_version_names_the_kernel():
    done = run("--version")
    assert done.code == 0
    assert b"kernel: compiled" in done.out or b"kernel: reference" in done.out
    assert b"CRC-32C in" in done.out


def test_help_of_every_verb():
    assert all(verb in run("--help").out.decode() for verb in ("cat", "count", "ls", "verify"))
    for verb in ("cat", "count", "ls", "verify"):
        done = run(verb, "--help")
        assert done.code == 0
        assert b"--output" in done.out
