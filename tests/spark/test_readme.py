"""The Python of the README and the guide to jobs, as printed: in an empty folder, in a new process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.proof, pytest.mark.timeout(580)]

ROOT = Path(__file__).parents[2]
ONCE = [(b"ada", b"1 apple"), (b"bob", b"2 pears"), (b"eve", b"3 plums")]


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def found(root: Path, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with stratalog.open(root, read_only=True) as logs:
        return sorted((record.key, record.value) for record in logs.read(topic).records())


def test_python_of_the_readme_runs_as_printed_and_again(tmp_path):
    readme, jobs = blocks("README.md"), blocks("docs/guides/spark-jobs.md")
    assert (len(readme), len(jobs)) == (3, 1)
    program = tmp_path / "readme.py"
    program.write_text("\n".join([*readme, *jobs]))
    for run in (1, 2):
        done = subprocess.run(
            [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        printed = [line for line in done.stdout.splitlines() if line.startswith(("0 ", "1 ", "2 "))]
        assert len(printed) == 3 * run, "what tail shows: every order so far"
        assert found(tmp_path / "logs", "orders") == sorted(run * ONCE)
        assert found(tmp_path / "logs", "copy") == ONCE, "one version, written once"
        loud = sorted(run * [(key, value.upper()) for key, value in ONCE])
        assert found(tmp_path / "louder", "loud") == loud, "each order once"
        assert done.stdout.splitlines()[-1] == ("6" if run == 1 else "3"), "exported: what is new"
    made = {path.name for path in tmp_path.iterdir()}
    ours = {"readme.py", "logs", "louder", "checkpoint", "out", "out-checkpoint"}
    assert made - {"spark-warehouse"} == ours
