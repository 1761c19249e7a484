"""What the set-up says while pip works."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tools import bootstrap


def test_progress_names_the_package_and_counts():
    progress = bootstrap.Progress("dev.lock", {"pyarrow", "pyspark", "ruff"})
    assert progress.sentence(set()) == "asking for packages, 0 of 3 packages"
    progress.hear("Collecting pyarrow==23.0.0 (from -r requirements/dev.lock (line 7))\n")
    progress.hear("  Downloading pyarrow-23.0.0-cp311-cp311-manylinux.whl (47.5 MB)\n")
    assert progress.sentence(set()) == "fetching pyarrow==23.0.0, 1 of 3 packages"
    progress.hear("Building wheel for pyspark (pyproject.toml): started\n")
    assert progress.sentence(set()) == "building pyspark, which has no wheel, 1 of 3 packages"
    progress.hear("Installing collected packages: ruff, pyarrow, pyspark\n")
    assert progress.sentence({"ruff", "pip"}) == "unpacking, 1 of 3 packages are in place"


def test_progress_is_said_while_a_command_runs(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "TOLD_EVERY_S", 0.001)
    progress = bootstrap.Progress("dev.lock", {"ruff"})
    said: list[str] = []

    def wait_until_it_is_said(line: str) -> None:
        while not said:
            said.extend(capsys.readouterr().err.splitlines())

    monkeypatch.setattr(progress, "hear", wait_until_it_is_said)
    bootstrap.run([sys.executable, "-c", "print('Collecting ruff==1')"], "no", progress=progress)
    assert said[0].startswith("stratalog: dev.lock: asking for packages, ")


def test_output_is_returned_without_what_is_complained(capsys):
    program = "import sys; print('out'); sys.stderr.write('hm')"
    assert bootstrap.run([sys.executable, "-c", program], "no") == "out\n"
    assert capsys.readouterr().err == ""


def test_a_compiled_archive_is_imported_without_compiling(tmp_path: Path, monkeypatch):
    folder = tmp_path / "lib/python3/site-packages/pyspark/python/lib"
    folder.mkdir(parents=True)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    with zipfile.ZipFile(folder / "p.zip", "w") as archive:
        archive.writestr("p/__init__.py", "from p import inner\nname = __file__\n")
        archive.writestr("p/inner.py", "raise_ = 1\n")
    bootstrap.compile_archives()
    bootstrap.compile_archives()  # what is there already is no obstacle
    with zipfile.ZipFile(folder / "p.zip") as archive:
        assert sorted(archive.namelist()) == [
            "p/__init__.py", "p/__init__.pyc", "p/inner.py", "p/inner.pyc"
        ]  # fmt: skip
    program = "import p; print(p.name)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(folder / "p.zip")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"{folder / 'p.zip' / 'p' / '__init__.pyc'}\n"
