"""``cat --latest-per-key``: the newest record of each key, and what was left out for it."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from tests.cli.runner import run, spawn
from tests.inspect.logs import flipped, segment


def batch(base: int, *pairs: tuple[bytes | None, bytes | None]) -> bytes:
    return build_batch([Record(value, key=key) for key, value in pairs], base_offset=base)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    segment(
        tmp_path, 0, batch(0, (b"a", b"1"), (b"b", b"1"), (None, b"x")) + batch(3, (b"a", b"2"))
    )
    segment(tmp_path, 4, batch(4, (b"b", None), (None, b"y")))
    return tmp_path


def offsets(*options: object) -> list[int]:
    return [row["offset"] for row in run("cat", "--latest-per-key", *options).rows()]


def test_newest_records_are_printed_and_keyless_ones_counted(logs):
    done = run("cat", "--latest-per-key", logs, "--columns", "offset,key,value")
    assert done.code == 0
    assert done.rows() == [
        {
            "offset": 3,
            "key": base64.b64encode(b"a").decode(),
            "value": base64.b64encode(b"2").decode(),
        }
    ]
    assert done.err == "stratalog: note: left out: 2 records without a key\n"


def test_options_combine(logs, tmp_path):
    assert offsets(logs, "--tombstones") == [3, 4]
    assert offsets(logs, "--tombstones", "-n", "1") == [3]
    assert offsets(logs, "--end", "4") == [1, 3]
    assert offsets(logs, "--memory", "64KiB") == [3]
    out = tmp_path / "latest.parquet"
    assert run("cat", "--latest-per-key", logs, "--out", out).code == 0
    assert pq.read_table(out)["offset"].to_pylist() == [3]


def test_nothing_of_a_damaged_partition_is_printed_unless_damage_is_skipped(logs):
    damaged = flipped(batch(0, (b"a", b"1")), -3) + batch(1, (b"a", b"2"))
    segment(logs, 0, damaged, partition="orders-1")
    done = run("cat", "--latest-per-key", logs)
    assert (done.code, [row["partition"] for row in done.rows()]) == (1, [0])
    assert "left out: orders-1 from offset 0 on; reading can resume at offset 1" in done.err
    done = run("cat", "--latest-per-key", "--skip-damaged", logs)
    assert (done.code, [row["partition"] for row in done.rows()]) == (1, [0, 1])


def test_wrong_options_are_refused_in_words_of_the_command_line(logs):
    for options, says in (
        (["--tombstones"], "--tombstones needs --latest-per-key"),
        (["--memory", "1MiB"], "--memory needs --latest-per-key"),
        (["--latest-per-key", "--memory", "1k"], "--memory is at least 65536, not 1024"),
        (["--latest-per-key", "--control"], "--control and --latest-per-key cannot be combined"),
    ):
        done = run("cat", logs, *options)
        assert done.code == 2
        assert says in done.err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux has /proc")
def test_temporary_files_that_cannot_be_written_are_one_error(tmp_path):
    for number in range(2):
        pairs = [(b"%d" % n, b"v") for n in range(5000)]
        segment(tmp_path, 0, batch(0, *pairs), partition=f"t-{number}")
    code = "import tempfile; tempfile.tempdir = '/proc/self'"
    (tmp_path / "sitecustomize.py").write_text(code)
    done = spawn("cat", "--latest-per-key", "--memory", "64KiB", tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.code, done.out) == (3, b"")
    (line,) = done.err.splitlines()
    assert line.startswith("stratalog: /proc/self: keys cannot be spilled to temporary files: ")
    assert line.endswith("raise --memory, or set TMPDIR to another directory")
