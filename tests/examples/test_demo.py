"""make demo: the pipeline is killed, started again, and what comes out is exact; or the demo fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from examples import demo

ROOT = Path(__file__).parents[2]


@pytest.mark.proof  # it starts Spark twice
def test_demo_is_exact_over_a_kill_and_leaves_nothing(tmp_path):
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py"), "--orders", "4000"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SIGKILL to the driver and its processes" in ran.stdout
    assert "in the middle of batch" in ran.stdout
    assert "exact: 4,000 orders in" in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []


def processes_with(word: str) -> list[str]:
    listed = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if word in line]


def test_a_missing_a_doubled_and_a_wrong_window_are_told():
    expected = demo.expected_windows(500)
    found = sorted(expected.items())
    assert demo.compare_windows(expected, found) == []
    (name, (orders, cents)), *others = found
    assert demo.compare_windows(expected, others) == [f"window {name} is missing"]
    assert demo.compare_windows(expected, [*found, found[0]]) == [f"window {name} is there twice"]
    wrong = demo.compare_windows(expected, [(name, (orders + 1, cents)), *others])
    assert wrong == [f"window {name} has {(orders + 1, cents)}, not {(orders, cents)}"]
    assert demo.compare_windows(expected, [*found, ("0 Rom", (1, 1))]) != []


def test_totals_that_are_not_exact_are_told():
    expected = demo.expected_totals(1000)
    right = {name: (n, n, n, cents, cents) for name, (n, cents) in expected.items()}
    assert demo.compare_totals(expected, right) == []
    name, (n, cents) = next(iter(expected.items()))
    for planted in (
        (n + 1, n, n, cents, cents),
        (n, n, n + 1, cents, cents),
        (n, n, n, cents, cents - 1),
    ):
        assert len(demo.compare_totals(expected, {**right, name: planted})) == 1
    del right[name]
    assert demo.compare_totals(expected, right) == [f"{name} is missing"]


def test_a_pipeline_that_is_not_killed_or_fails_is_no_success(tmp_path, monkeypatch, capsys):
    """It ends with exit code 1 also where the job does not do as it should."""
    job = tmp_path / "demo_job.py"
    job.write_text("raise SystemExit('stratalog.errors.StorageError: planted')\n")
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "demo.py"))
    assert demo.main(["--orders", "200", "--keep", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert "planted" in said
    assert "the pipeline did not live as it should" in said


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    with pytest.raises(SystemExit) as raised:
        demo.main(["--keep", str(tmp_path)])
    assert raised.value.code == 2


def test_readme_shows_what_the_demo_says():
    """All but the time, and what was under way when it was killed."""
    text = (ROOT / "README.md").read_text()
    windows = len(demo.expected_windows(demo.ORDERS))
    assert f"exact: {demo.ORDERS:,} orders in {windows:,} windows and in the totals of" in text
    assert f" {demo.CUSTOMERS} customers, none missing, none twice;" in text
