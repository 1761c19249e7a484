"""``import stratalog`` and ``stratalog --help`` pay for nothing that they do not use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

HEAVY = ["cramjam", "duckdb", "numpy", "pandas", "polars", "pyarrow", "pyspark", "rich"]
PROGRAM = "import sys, {module}; print(*sorted(set(sys.modules) & set({names!r})))"


def brought_in(module: str, names: list[str]) -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(module=module, names=names)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return run.stdout.split()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("stratalog", [*HEAVY, "click", "asyncio", "logging"]),
        ("stratalog.errors", [*HEAVY, "click"]),
        ("stratalog.types", [*HEAVY, "click"]),
        ("stratalog.cli.main", HEAVY),
    ],
)
def test_import_brings_in_nothing_heavy(module, names):
    if importlib.util.find_spec(module) is None:
        pytest.fail(f"{module} does not exist")
    assert brought_in(module, names) == []


def test_heavy_import_would_be_noticed():
    assert brought_in("click", ["click", "rich"]) == ["click"]
    assert "numpy" in brought_in("numpy", HEAVY)
