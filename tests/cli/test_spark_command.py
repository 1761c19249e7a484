"""``stratalog spark``: what its jobs print, and how they end. The jobs: tests/spark/jobs/test_jobs.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog
from tests.cli.runner import ROOT, command, environment, run
from tests.cli.test_cli_guide import run_pipe
from tests.judges.peers.golden import golden_set

GUIDE = ROOT / "docs/guides/spark-jobs.md"
BLOCKS = re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
JOBS = (
    "count", "stat", "verify", "export", "import", "mirror", "compact", "erase", "recompress",
    "upgrade", "salvage",
)  # fmt: skip

slow = pytest.mark.slow


def folders(name: str) -> list[str]:
    return [str(each.relative_to(ROOT)) for each in golden_set(name).log_dirs]


@pytest.mark.parametrize("arguments", [["spark"], *(["spark", job, "--help"] for job in JOBS)])
def test_spark_is_not_imported_before_a_job_runs(arguments):
    program = (
        "import sys\n"
        f"sys.argv = ['stratalog', *{arguments!r}]\n"
        "from stratalog.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, cwd=ROOT
    )
    assert "Traceback" not in done.stderr.decode()
    # With no job named, the help is an error of usage, and its text is on stderr.
    assert done.stderr.decode().splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["count", "no-such-folder"], 3, "no such file or directory"),
        (["count", "--conf", "nonsense", "x"], 2, "write NAME=VALUE"),
        (["count", "--json", "-o", "csv", "x"], 2, "use one of them"),
        (["count", "--offsets", "soon", *folders("v2-plain")], 2, "is not a range of offsets"),
        (["verify", "-t", "nope", *folders("v2-plain")], 2, "no topic"),
        (["count", "-p", "99", *folders("v2-plain")], 2, "no partition 99"),
        (["compact", *folders("v2-plain")], 2, "name the topics to compact"),
        (["compact", "-t", "nope", *folders("v2-plain")], 2, "no topic"),
        (["compact", "-t", "x", "no-such-folder"], 3, "no such log directory"),
        (["erase", *folders("v2-plain")], 2, "nothing is named to be erased"),
        (["recompress", "-z", "lz4", "--roll", *folders("v2-plain")], 2, "without --write"),
        (["upgrade", "--max-seconds", "5", *folders("v2-plain")], 2, "committed as a whole"),
        (["salvage", "no-such-folder"], 3, "no such file or directory"),
        (["salvage", "--write", *folders("v2-plain")], 2, "--write needs --out"),
        (["salvage", "-t", "nope", *folders("v2-plain")], 2, "no topic"),
        (
            ["salvage", "--out", f"{folders('v2-plain')[0]}/new", *folders("v2-plain")],
            2,
            "lie in each",
        ),
        (["salvage", "--out", "docs", *folders("v2-plain")], 2, "is not empty"),
        (["salvage", "docs"], 2, "is not a log directory"),
        (["salvage", "README.md"], 2, "is a file"),
    ],
)
def test_what_is_wrong_is_said_before_java_starts(arguments, code, says, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("spark", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert says in done.err
    assert done.err.count("\n") == 1


@slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["v2-torn", "v2-multi-dir"])
def test_jobs_print_what_the_plain_commands_print(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    for arguments in (
        ["count"], ["count", "--by", "topic"], ["count", "--by", "file", "--offsets", "-5"],
        ["count", "-o", "table"], ["verify"], ["verify", "-o", "table"], ["verify", "-o", "csv"],
    ):  # fmt: skip
        plain = run(*arguments, *folders(name))
        ours = run("spark", *arguments, *folders(name))
        assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err), arguments


@slow
@pytest.mark.usefixtures("spark")
def test_stat_has_what_ls_has_and_more():
    plain = run("ls", *folders("v2-transactions")).rows()
    found = run("spark", "stat", "--json", *folders("v2-transactions"))
    assert found.code == 0
    rows = json.loads(found.out)
    for row, known in zip(rows, plain, strict=True):
        assert known.items() <= row.items()
        assert sum(row["codecs"].values()) == sum(row["formats"].values()) == row["batches"]
    assert any(row["transactional_batches"] for row in rows)


@pytest.mark.proof
@slow
@pytest.mark.usefixtures("spark")
def test_jobs_that_write_say_what_they_did_and_would_do(make_log, tmp_path):
    path = make_log(100)
    out, copy, back = tmp_path / "out", tmp_path / "copy", tmp_path / "back"
    for arguments in (
        ["export", path, "--to", out], ["mirror", path, "--to", copy],
    ):  # fmt: skip
        dry = run("spark", *arguments, "--dry-run")
        assert "a dry run: nothing was" in dry.err
        assert sum(row["end_offset"] - row["start_offset"] for row in dry.rows()) == 100
        assert not out.exists()
        assert not copy.exists()
    done = run(
        "spark", "export", path, "--to", out, "--decode", "text", "--option", "compression=zstd"
    )
    assert (done.code, done.err) == (0, f"stratalog: note: 100 records were written to {out}\n")
    again = run("spark", "export", path, "--to", out)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "already exists" in again.err
    mirrored = run("spark", "mirror", path, "--to", copy, "--json")
    assert sum(row["records"] for row in json.loads(mirrored.out)) == 100
    assert run("cat", copy).out == run("cat", path).out
    imported = run(
        "spark", "import", out, "--to", back, "-t", "orders", "--partitions", "3",
        "--txn-app-id", "test", "--txn-version", "1",
    )  # fmt: skip
    assert sum(row["records"] for row in imported.rows()) == 100
    with stratalog.open(str(back), read_only=True) as logs:
        values = sorted(record.value or b"" for record in logs.read("orders").records())
    assert values == sorted(b"value-%d" % number for number in range(100))
    second = run(
        "spark", "import", out, "--to", back, "-t", "orders",
        "--txn-app-id", "test", "--txn-version", "1",
    )  # fmt: skip
    assert "was imported before: nothing was written" in second.err
    assert run("count", back).rows() == run("spark", "count", back).rows()


@slow
@pytest.mark.usefixtures("spark")
def test_damage_ends_a_mirror_with_one_line_and_its_code(tmp_path):
    done = run("spark", "mirror", *folders("v2-torn"), "--to", tmp_path / "copy")
    assert done.code == 1
    assert "crc_mismatch" in done.err
    assert "Traceback" not in done.err


@pytest.mark.proof  # a Java of its own starts in it
def test_a_job_starts_a_session_of_its_own_and_is_quiet():
    done = subprocess.run(
        command("spark", "count", "--master", "local[1]", "--conf", "spark.app.name=x", "--json",
                *folders("v2-plain")),
        capture_output=True, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == b""
    assert json.loads(done.stdout) == run("count", *folders("v2-plain")).rows()


@slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][2:60])
def test_the_guide_shows_what_jobs_print(block, monkeypatch, tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown = []
    for line in block.splitlines():
        if line.startswith("$ "):
            done = run_pipe(line[2:])
            shown += [line, *(done.out.decode() + done.err).splitlines()]
    assert block.splitlines() == shown


def test_the_guide_has_every_job():
    text = GUIDE.read_text()
    for job in JOBS:
        assert re.search(rf"^\$ stratalog spark {job} ", text, re.MULTILINE)
    assert Path(GUIDE).name in (ROOT / "docs/guides/cli.md").read_text()
