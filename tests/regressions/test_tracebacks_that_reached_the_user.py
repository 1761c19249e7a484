"""Closed streams, a size beyond 64 bits and a path that is not UTF-8 ended a command in a traceback."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.records.layout import INT64_MAX
from tests.cli.runner import Run, command, run
from tests.inspect.logs import batch, segment
from tests.judges.peers.golden import golden_set

SEGMENT = golden_set("v2-plain").partitions()[0].segments[0]
VERBS = ["cat", "count", "ls", "verify"]


def closing(redirection: str, *arguments: object, stdin: bytes = b"") -> Run:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)],
        input=stdin, capture_output=True, timeout=60,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("verb", VERBS)
def test_closed_stdout_is_one_line_and_exit_code_2(verb):
    done = closing(">&-", verb, SEGMENT)
    assert (done.code, done.err) == (
        2, "stratalog: standard output is closed: add --out FILE\n",
    )  # fmt: skip


def test_closed_stdout_is_told_before_anything_is_appended(tmp_path):
    assert closing(">&-", "produce", tmp_path / "logs", "-t", "t", stdin=b"a\n").code == 2
    assert not (tmp_path / "logs").exists()


def test_closed_stdout_does_not_matter_to_a_file(tmp_path):
    done = closing(">&-", "count", SEGMENT, "--out", tmp_path / "rows.json")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "rows.json").stat().st_size


@pytest.mark.parametrize("verb", VERBS)
def test_closed_stderr_does_not_matter(verb):
    assert closing("2>&-", verb, SEGMENT).code == 0
    assert closing("2>&-", verb, SEGMENT).out == closing("", verb, SEGMENT).out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["cat", "no-such-file"], 3),
        (["cat", "--no-such-option"], 2),
        (["no-such-verb"], 2),
        ([], 2),
    ],
)
def test_exit_code_is_the_same_without_stderr(arguments, code):
    assert closing("2>&-", *arguments).code == closing("", *arguments).code == code


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_streams_that_are_closed_are_not_taken_by_the_log(tmp_path):
    """A file of the log that got the number of stderr would get what libraries write there."""
    program = (
        "import os, sys\nfrom stratalog.cli.main import main\n"
        f"sys.argv = ['stratalog', 'produce', {str(tmp_path / 'logs')!r}, '-t', 't', '-o', 'csv']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "os.write(2, b'said by a library')\nprint(os.readlink('/proc/self/fd/2'))\n"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command()[:1], "-c", program],
        input=b"a\n", capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines()[1:] == [b"t,0,1,0,0", b"/dev/null"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("size", [str(INT64_MAX + 1), "9" * 40, "8589934592GiB"])
def test_size_beyond_64_bits_is_a_wrong_command_line(verb, size):
    done = run(verb, "--max-batch-bytes", size, SEGMENT)
    assert (done.code, f"'{size}' is larger than 2^63-1 bytes" in done.err) == (2, True)
    assert run(verb, "--max-batch-bytes", INT64_MAX, SEGMENT).code == 0


@pytest.mark.parametrize("arguments", [["count"], ["verify"], ["ls", "--by", "segment"]])
def test_path_that_is_not_utf8_is_escaped_in_arrow(tmp_path, arguments):
    folder = tmp_path / os.fsdecode(b"caf\xe9 \xc3\xa9")
    folder.mkdir()
    path = segment(folder, 0, batch(0))
    shown = path.replace("\udce9", "\\xe9")
    done = run(*arguments, "-o", "parquet", path)
    assert (done.code, done.err) == (0, "")
    assert pq.read_table(io.BytesIO(done.out))["path"].to_pylist() == [shown]
    arrow = run(*arguments, "-o", "arrow", path).out
    assert pa.ipc.open_stream(arrow).read_all()["path"].to_pylist() == [shown]
