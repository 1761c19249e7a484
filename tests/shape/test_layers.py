"""The ladder of ARCHITECTURE.md as a table: who may import whom, and what parsers may not touch.

Goal: a crossed layer fails here and not in review. Method: the imports are read from the source.
The second half plants a violation of every rule in a copy and wants it found.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.shape.imports import PACKAGE, SOURCE, Module, chains_at_import, read_modules, unit_of

GROUND = {"errors", "types", "clock"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors"},
    "clock": {"errors", "types"},
    "records": GROUND,
    "protocol": GROUND,
    "storage": GROUND | {"records"},
    "inspect": GROUND | {"records", "storage"},
    "rewrite": GROUND | {"records", "storage"},
    "manager": GROUND | {"records", "storage", "rewrite"},
    "broker": GROUND | {"records", "storage", "rewrite", "manager", "protocol"},
    "spark": GROUND | {"records", "storage", "inspect", "rewrite", "manager"},
    "console": GROUND | {"records", "storage", "inspect"},
}
BELOW_CLI = set(MAY_IMPORT)
MAY_IMPORT |= {
    "testing": BELOW_CLI,
    "cli": BELOW_CLI | {"__init__", "testing"},
    "__init__": BELOW_CLI,
    "__main__": {"cli"},
}

# Parsers take buffers and return values: they do not open, wait, read a clock, or speak.
PURE = {"records", "protocol"}
WORLD = {
    "asyncio", "fcntl", "glob", "http", "io", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "posix", "random", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "libc.stdio", "libc.time",
}  # fmt: skip
WORLD_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print"}
WORLD_ALLOWED = {
    (f"{PACKAGE}.records.kernel", "os"),  # STRATALOG_KERNEL chooses the kernel, in this one file
}

# One colour boundary: everything else is synchronous.
ASYNCHRONOUS = {"broker", "console", "testing"}

# What must not be paid for by everyone who imports us, or who asks the command line for help.
HEAVY = {
    "aiokafka", "confluent_kafka", "cramjam", "duckdb", "kafka", "numpy", "pandas", "polars",
    "pyarrow", "pyspark", "rich",
}  # fmt: skip
LIGHT_ENTRIES = {PACKAGE: HEAVY | {"click"}, f"{PACKAGE}.cli.main": HEAVY}

DRAWERS = {"base", "common", "helper", "helpers", "misc", "shared", "util", "utils"}


def layer_findings(modules: dict[str, Module]) -> list[str]:
    findings = []
    for module in modules.values():
        if module.unit not in MAY_IMPORT:
            findings.append(f"{module.name} is not on the ladder: add {module.unit} to the table")
            continue
        for each in module.imports:
            if each.name.split(".")[0] != PACKAGE:
                continue
            other = unit_of(each.name)
            if other not in MAY_IMPORT[module.unit] | {module.unit}:
                findings.append(f"{each}: {module.unit} may not know {other}")
    return findings


def purity_findings(modules: dict[str, Module]) -> list[str]:
    findings = []
    for module in modules.values():
        for each in module.imports:
            root = each.name.split(".")[0]
            if root == "asyncio" and module.unit not in ASYNCHRONOUS:
                findings.append(f"{each}: only {sorted(ASYNCHRONOUS)} are asynchronous")
            if module.unit not in PURE or each.typing_only or (module.name, root) in WORLD_ALLOWED:
                continue
            if {root, ".".join(each.name.split(".")[:2])} & WORLD:
                findings.append(f"{each}: {module.unit} does no I/O")
        if module.unit in PURE and module.path.suffix == ".py":
            findings += _world_calls(module)
    return findings


def _world_calls(module: Module) -> list[str]:
    findings = []
    for node in ast.walk(ast.parse(module.path.read_text())):
        if isinstance(node, ast.AsyncFunctionDef):
            findings.append(f"{module.name}:{node.lineno} is async: {module.unit} never waits")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in WORLD_CALLS:
            findings.append(f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}()")
    return findings


def weight_findings(modules: dict[str, Module]) -> list[str]:
    findings = []
    for entry, heavy in LIGHT_ENTRIES.items():
        for name, chain in chains_at_import(modules, entry).items():
            if name.split(".")[0] in heavy and chain[-2] in modules:
                findings.append(f"import {entry} brings in " + " → ".join(chain[1:]))
    return findings


def drawer_findings(modules: dict[str, Module]) -> list[str]:
    return [
        f"{name}: a drawer; name it for what is in it"
        for name in modules
        if DRAWERS & {part.strip("_") for part in name.split(".")}
    ]


CHECKS = [layer_findings, purity_findings, weight_findings, drawer_findings]


@pytest.mark.parametrize("check", CHECKS)
def test_source_tree_has_no_findings(check):
    modules = read_modules(SOURCE)
    assert len(modules) > 5, "the source tree was not found"
    assert check(modules) == []


@pytest.mark.parametrize(
    ("check", "path", "text", "finding"),
    [
        (layer_findings, "records/a.py", "import stratalog.storage.b", "may not know storage"),
        (layer_findings, "records/a.py", "from stratalog import storage", "may not know storage"),
        (layer_findings, "errors.py", "from stratalog.types import Offset", "may not know types"),
        (layer_findings, "storage/b.py", "def f():\n  import stratalog.cli", "may not know cli"),
        (layer_findings, "inspect/c.py", "from stratalog import scan", "may not know __init__"),
        (layer_findings, "records/k.pyx", "from stratalog.storage.b cimport x", "know storage"),
        (layer_findings, "attic/d.py", "", "not on the ladder"),
        (purity_findings, "records/a.py", "import os", "does no I/O"),
        (purity_findings, "records/a.py", "from os.path import join", "does no I/O"),
        (purity_findings, "records/a.py", "def f():\n  import time", "does no I/O"),
        (purity_findings, "records/a.py", "def f(p):\n  return open(p)", "calls open()"),
        (purity_findings, "protocol/e.py", "async def f(): ...", "never waits"),
        (purity_findings, "records/k.pyx", "from libc.stdio cimport printf", "does no I/O"),
        (purity_findings, "storage/b.py", "import asyncio", "asynchronous"),
        (weight_findings, "__init__.py", "import pyarrow", "brings in pyarrow"),
        (weight_findings, "__init__.py", "from stratalog.records.a import f", "a → pyarrow"),
        (weight_findings, "cli/main.py", "import stratalog.records.a", "a → pyarrow"),
        (weight_findings, "cli/__init__.py", "import rich.table", "rich.table"),
        (drawer_findings, "storage/utils.py", "", "a drawer"),
        (drawer_findings, "records/_helpers.py", "", "a drawer"),
    ],
)
def test_planted_violation_is_found(tmp_path, check, path, text, finding):
    tree = _plant(tmp_path)
    assert check(read_modules(tree)) == []
    target = tree / PACKAGE / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    if check is weight_findings and "pyarrow" not in text:
        (tree / PACKAGE / "records/a.py").write_text("import pyarrow as pa")
    assert any(finding in each for each in check(read_modules(tree))), check(read_modules(tree))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("records/kernel.py", "import os"),
        ("records/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import os"),
        ("__init__.py", "def scan():\n  import pyarrow"),
        ("__init__.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import pyarrow"),
        ("cli/main.py", "import click"),
        ("storage/b.py", "import os, time\nfrom stratalog import errors, records"),
        ("broker/f.py", "import asyncio\nfrom stratalog.manager import x"),
    ],
)
def test_allowed_import_is_not_a_finding(tmp_path, path, text):
    tree = _plant(tmp_path)
    target = tree / PACKAGE / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    modules = read_modules(tree)
    assert [finding for check in CHECKS for finding in check(modules)] == []


def _plant(folder: Path) -> Path:
    for name in ("__init__", "errors", "types", "records/__init__", "records/a", "cli/main"):
        path = folder / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Fine."""\n')
    for name in ("storage", "inspect", "protocol", "manager"):
        path = folder / PACKAGE / name / "__init__.py"
        path.parent.mkdir()
        path.write_text("")
    return folder
