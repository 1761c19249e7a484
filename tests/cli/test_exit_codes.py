"""What is not a healthy log: one line that names the file, and an exit code that says whose fault it is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.runner import ROOT, command, environment, run, spawn
from tests.inspect.logs import batch, flipped, segment
from tests.judges.peers.golden import golden_set

VERBS = ["cat", "count", "ls", "verify"]
SEGMENTS = golden_set("v2-plain").partitions()[0].segments


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device", "loop"])
def test_what_is_no_readable_file_is_exit_code_3(tmp_path, verb, kind):
    path = tmp_path / "x.log"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/null"
    elif kind == "loop":
        path.symlink_to(path)
    done = run(verb, path)
    assert done.code == 3
    assert done.err.startswith(f"stratalog: {path}: ")
    assert done.err.count("\n") == 1
    if verb == "verify" and kind not in ("missing", "directory"):
        assert [row["status"] for row in done.rows()] == ["unreadable"]
    else:
        assert done.out == b""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_exit_code_3(tmp_path, verb):
    path = tmp_path / "x.log"
    path.touch(mode=0)
    done = run(verb, path)
    assert (done.code, "permission denied" in done.err) == (3, True)


@pytest.mark.parametrize("verb", VERBS)
def test_refused_read_is_exit_code_3(monkeypatch, verb):
    def refused(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", refused)
    done = run(verb, SEGMENTS[0])
    assert done.code == 3
    assert "input/output error" in done.err.lower()


@pytest.mark.parametrize("verb", ["count", "verify"])
def test_other_files_are_still_read(tmp_path, verb):
    done = run(verb, tmp_path / "missing.log", *SEGMENTS)
    assert done.code == 3
    assert [row["path"] for row in done.rows()] == [str(path) for path in SEGMENTS]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_and_text_are_damage_and_never_a_crash(tmp_path, verb, seed):
    rng = random.Random(seed)
    path = tmp_path / "x.log"
    path.write_bytes(rng.randbytes(3000) if seed else b"2024-03-13 INFO starting up\n" * 200)
    done = run(verb, path)
    assert done.code == 1
    if verb == "verify":
        assert done.rows()[0]["status"] == "damaged"
    else:
        assert done.err.startswith(f"stratalog: {path} at byte 0: ")
        assert done.err.count("\n") == (2 if verb == "cat" else 1)
        assert verb != "cat" or "nothing intact follows" in done.err


@pytest.mark.parametrize("verb", VERBS)
def test_empty_file_is_healthy(tmp_path, verb):
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    assert (run(verb, path).code, run(verb, path).err) == (0, "")


def test_torn_tail_is_a_warning_in_the_last_segment_and_damage_before(tmp_path):
    one = segment(tmp_path, 0, batch(0) + batch(3)[:-5])
    two = segment(tmp_path, 6, batch(6))
    for verb in ("cat", "count"):
        last = run(verb, one)
        assert last.code == 0
        assert last.err.startswith("stratalog: warning: ")
        before = run(verb, one, two)
        assert before.code == 1
        assert "short_tail" in before.err
        assert not before.err.startswith("stratalog: warning: ")
    assert run("verify", one).code == 1
    assert run("verify", one).rows()[0]["status"] == "torn"
    assert run("verify", one, two).rows()[0]["status"] == "damaged"


def test_verify_notes_are_no_findings(tmp_path):
    path = segment(tmp_path, 0, batch(0) + batch(10))
    done = run("verify", "--gaps", path)
    assert done.code == 0
    assert done.rows()[0]["findings"][0]["severity"] == "note"


def test_verify_says_where_and_what_to_do(tmp_path):
    path = segment(tmp_path, 0, batch(0) + flipped(batch(3), 90))
    done = run("verify", "-o", "table", path)
    assert done.code == 1
    last = done.out.decode().splitlines()[-1]
    assert f"damage: {path} at byte {len(batch(0))}, offset 3" in last
    assert "restore this segment" in last


def test_count_goes_to_the_damage_and_fails(tmp_path):
    path = segment(tmp_path, 0, batch(0) + flipped(batch(3), 16, 6))
    done = run("count", path)
    assert (done.code, done.rows()[0]["records"]) == (1, 3)
    assert f"{path} at byte {len(batch(0))}: " in done.err


def test_control_characters_in_a_path_do_not_reach_the_terminal(tmp_path):
    done = run("cat", str(tmp_path / "a\x1b[31m\n.log"))
    assert "\x1b" not in done.err
    assert "\\x1b[31m\\n.log" in done.err


def large_log(tmp_path) -> str:
    data = b"".join(batch(100 * n, 100, size=1000) for n in range(60))
    return segment(tmp_path, 0, data)


@pytest.mark.parametrize("output", ["ndjson", "json", "csv", "table", "parquet", "arrow"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_quiet_and_no_error(tmp_path, output, unbuffered):
    process = subprocess.Popen(
        command("cat", "-o", output, large_log(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_full_disk_is_exit_code_3(tmp_path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("cat", large_log(tmp_path)), stdout=full, stderr=subprocess.PIPE, cwd=ROOT
        )
    assert done.returncode == 3
    assert done.stderr.decode() == "stratalog: cannot write: no space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
@pytest.mark.parametrize("words", [("--help",), ("cat", "--help"), ("--version",)])
def test_help_on_a_full_disk_is_exit_code_3_without_a_traceback(words):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command(*words), stdout=full, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 3
    assert done.stderr.decode() == "stratalog: cannot write: no space left on device\n"


def test_interrupt_exits_130_without_a_traceback(tmp_path):
    process = subprocess.Popen(
        command("cat", large_log(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.read(10)  # it is at work: more is to come than a pipe holds
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_python_dash_m_is_the_same_program():
    done = spawn("count", "-o", "csv", SEGMENTS[0].relative_to(ROOT))
    assert done.code == 0
    assert done.out.splitlines()[1].split(b",")[3] == b"151"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("arguments", "code"), [(["ls", "no-such-folder"], 3), (["ls", ".", "-o", "xml"], 2)]
)
def test_full_stderr_keeps_the_exit_code(arguments, code):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments), stderr=full, stdout=subprocess.DEVNULL, timeout=60
        )
    assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_rows_of_produce_that_cannot_be_printed_say_that_records_were_appended(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("produce", tmp_path / "logs", "-t", "t"),
            input=b"v\n", stdout=full, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
    assert done.returncode == 3
    assert b"the records were appended: do not run the command again" in done.stderr


@pytest.mark.parametrize("option", ["--max-batch-bytes", "--max-decompressed-bytes"])
def test_limit_of_no_bytes_is_refused_before_anything_is_read(tmp_path, option):
    done = run("count", tmp_path, option, "0")
    assert (done.code, done.out) == (2, b"")
    assert "at least 1 byte" in done.err
