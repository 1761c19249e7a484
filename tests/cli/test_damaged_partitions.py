"""``cat`` over a directory with a damaged partition, and files of ``--out``."""

from __future__ import annotations

import pytest

from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment


@pytest.fixture
def logs(tmp_path):
    """Three partitions, the first of them damaged in its second batch of three."""
    folder = tmp_path / "logs"
    folder.mkdir()
    segment(folder, 0, batch(0) + flipped(batch(3), 80) + batch(6))
    for number in (1, 2):
        segment(folder, 0, batch(0), partition=f"orders-{number}")
    return folder


def places(done) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in done.rows()]


OTHERS = [(number, offset) for number in (1, 2) for offset in range(3)]


def test_the_other_partitions_are_printed(logs):
    done = run("cat", logs)
    assert done.code == 1
    assert places(done) == [*((0, offset) for offset in range(3)), *OTHERS]
    assert "orders-0 from offset 3 on; reading can resume at offset 6" in done.err


def test_skip_damaged_goes_on_and_lists_what_it_left_out(logs):
    done = run("cat", "--skip-damaged", logs)
    assert done.code == 1
    assert places(done) == [*((0, offset) for offset in (0, 1, 2, 6, 7, 8)), *OTHERS]
    (line,) = done.err.splitlines()
    assert f"at byte {len(batch(0))}" in line
    assert "crc_mismatch" in line
    assert (
        f"{len(batch(3))} bytes left out, from offset 3 on; reading can resume at offset 6" in line
    )


def test_arrow_output_has_the_other_partitions_too(logs, tmp_path):
    import pyarrow.parquet as pq

    done = run("cat", logs, "--out", tmp_path / "all.parquet")
    assert done.code == 1
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 9


def test_start_below_zero_and_beyond_the_end(logs):
    assert run("cat", "--start", "-5", logs).code == 2
    beyond = run("cat", "--start", "100", logs / "orders-1")
    assert (beyond.code, beyond.err.count("\n")) == (2, 1)
    assert "offset 100 is out of range: the log holds 0 up to 3" in beyond.err
    some = run("cat", "--start", "7", "--skip-damaged", logs)
    assert places(some) == [(0, 7), (0, 8)]
    assert "orders-1 ends at offset 3, before 7" in some.err


def test_a_run_that_fails_leaves_no_file(logs, tmp_path, monkeypatch):
    """What it has written so far would be in the way of the next run."""
    from stratalog.cli import render

    out = tmp_path / "all.ndjson"

    def fail(result, sink, before_output):
        sink.write(b"half a li")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(render.FORMATS, "ndjson", fail)
        assert run("cat", logs / "orders-1", "--out", out).code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert run("cat", logs / "orders-1", "--out", out).code == 0
    assert out.read_bytes().count(b"\n") == 3
