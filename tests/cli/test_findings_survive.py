"""A closed pipe, an unreadable folder or file: none of them hides what was found elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import OsFileSystem, OsReadableFile
from tests.cli.runner import ROOT, command, environment, run
from tests.inspect.logs import batch, flipped, segment


@pytest.fixture
def damaged(tmp_path):
    """Many partitions, the last one damaged."""
    for number in range(120):
        segment(tmp_path, 0, batch(0), partition=f"orders-{number}")
    segment(tmp_path, 0, batch(0) + flipped(batch(3), 90), partition="zebra-0")
    return tmp_path


@pytest.mark.parametrize("options", [["-o", "ndjson"], ["-o", "table"]])
def test_exit_code_survives_a_closed_pipe(damaged, options):
    program = command("verify", *options, damaged)
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
        code = process.wait(timeout=60)
    assert code == 1
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_count_and_ls_tell_of_damage_behind_a_closed_pipe(tmp_path):
    for number in range(60):
        segment(tmp_path, 0, batch(0), partition=f"orders-{number}")
    segment(tmp_path, 0, batch(0) + flipped(batch(3), 16, 6), partition="zebra-0")
    for verb in ("count", "ls"):
        shown = " ".join(map(str, command(verb, "-o", "ndjson", tmp_path)))
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shown} | head -1 >/dev/null"],
            capture_output=True, timeout=60, env=environment(), cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr


def test_cat_stops_when_nobody_reads(tmp_path):
    path = segment(tmp_path, 0, b"".join(batch(3 * n, size=500) for n in range(5000)))
    shown = " ".join(map(str, command("cat", "-o", "ndjson", path)))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shown} | head -1 >/dev/null"],
        capture_output=True, timeout=60, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


class Refusing(OsFileSystem):
    """Refuses paths that end like one of these."""

    refused: tuple[str, ...] = ()

    def _check(self, path):
        if path.endswith(self.refused):
            raise StorageError("permission denied", path=path, errno=13)

    def list_dir(self, path):
        self._check(path)
        return super().list_dir(path)

    def open_readable(self, path):
        self._check(path)
        return OsReadableFile(path)


@pytest.fixture
def refusing(monkeypatch):
    """Every command gets a file system that refuses what a test names."""

    def refuse(*names):
        monkeypatch.setattr(Refusing, "refused", names)
        for module in (
            "inspect.partition.sources",
            "cli.commands.verify",
            "inspect.scan",
            "storage.segment.log_file",
        ):
            monkeypatch.setattr(f"stratalog.{module}.OsFileSystem", Refusing, raising=False)
        monkeypatch.setattr("stratalog.inspect.verify.directory.OsFileSystem", Refusing)

    for verb in ("cat", "count", "ls", "verify"):
        run(verb, "--help")
    return refuse


@pytest.mark.parametrize("verb", ["cat", "count", "ls", "verify"])
def test_unreadable_folder_hides_no_other(tmp_path, refusing, verb):
    for number in range(3):
        segment(tmp_path, 0, batch(0), partition=f"orders-{number}")
    refusing("orders-1")
    done = run(verb, tmp_path)
    assert done.code == 3
    assert done.err.count("orders-1: permission denied") == 1
    seen = {row["partition"] for row in done.rows()}
    assert seen == ({0, 1, 2} if verb == "verify" else {0, 2})
    if verb == "verify":
        (row,) = [row for row in done.rows() if row["status"] != "ok"]
        assert (row["status"], row["kind"]) == ("unreadable", "partition")


@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot", "leader-epoch-checkpoint"])
def test_unreadable_file_has_a_row(tmp_path, refusing, suffix):
    golden = ROOT / "tests/golden/v2-plain"
    root = Path(shutil.copytree(golden, tmp_path / "logs"))
    (folder,) = root.glob("*-0")
    name = max(path.name for path in folder.iterdir() if path.name.endswith(suffix))
    refusing(name)
    done = run("verify", root)
    assert done.code == 3
    (row,) = [row for row in done.rows() if row["status"] != "ok"]
    assert (row["path"], row["status"]) == (str(folder / name), "unreadable")
    assert f"{name}: permission denied" in done.err
    assert "Traceback" not in done.err


def test_folder_or_link_in_the_place_of_a_segment_is_unreadable(tmp_path):
    segment(tmp_path, 0, batch(0))
    odd = tmp_path / "orders-0" / f"{3:020d}.log"
    odd.mkdir()
    link = tmp_path / "orders-0" / f"{3:020d}.index"
    link.symlink_to("/dev/null")
    segment(tmp_path, 0, batch(0), partition="orders-1")
    done = run("verify", tmp_path)
    assert done.code == 3
    rows = {row["path"]: row["status"] for row in done.rows()}
    assert (rows[str(odd)], rows[str(link)]) == ("unreadable", "unreadable")
    assert [row["status"] for row in done.rows() if row["partition"] == 1] == ["ok"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_files_without_permission_as_another_user():
    """Root reads everything. As nobody: a folder and a file without permission, and sound ones."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        for number in range(3):
            path = Path(segment(root, 0, batch(0), partition=f"orders-{number}"))
            path.parent.chmod(0o755)
            path.chmod(0o644)
        (root / "orders-1").chmod(0)
        (root / "orders-2" / f"{0:020d}.log").chmod(0)
        for verb in ("verify", "count", "ls", "cat"):
            run(verb, root)  # all modules are imported
            done = as_nobody(verb, root)
            assert done["code"] == 3
            assert "Traceback" not in done["err"]
            assert "orders-1: permission denied" in done["err"]
            rows = [json.loads(line) for line in done["out"].splitlines()]
            assert 0 in {row["partition"] for row in rows}
            if verb == "verify":
                statuses = {row["partition"]: row["status"] for row in rows}
                assert statuses == {0: "ok", 1: "unreadable", 2: "unreadable"}


def as_nobody(*arguments):
    """Run a command in a forked process that is not root."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgid(65534)
            os.setuid(65534)
            done = run(*arguments)
            answer = {"code": done.code, "out": done.out.decode(), "err": done.err}
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            answer = {"code": -1, "out": "", "err": repr(error)}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(data)
