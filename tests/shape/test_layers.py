"""The ladder of ARCHITECTURE.md as a table: who may import whom, and what parsers may not touch.

Goal: a crossed layer fails here and not in review. Method: the imports are read from the source.
The second half plants a violation of every rule in a copy and wants it found.
"""

from __future__ import annotations

import ast
from collections import Counter
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
    "metadata": GROUND | {"records", "storage"},
    "inspect": GROUND | {"records", "storage", "metadata"},
    "rewrite": GROUND | {"records", "storage", "metadata"},
    "manager": GROUND | {"records", "storage", "metadata", "rewrite"},
    "broker": GROUND | {"records", "storage", "metadata", "rewrite", "manager", "protocol"},
    "spark": GROUND | {"records", "storage", "metadata", "inspect", "rewrite", "manager"},
    "console": GROUND | {"records", "storage", "metadata", "inspect"},
}
BELOW_CLI = set(MAY_IMPORT)
MAY_IMPORT |= {
    "testing": BELOW_CLI,
    "cli": BELOW_CLI | {"__init__", "testing"},
    "__init__": BELOW_CLI,
    "__main__": {"cli"},
}

# Within a package: which sub-package or module may import which. Each may import only those above it in its
# table, so there are no cycles.
WITHIN: dict[str, dict[str, set[str]]] = {
    "storage": {
        "names": set(),
        "config_kinds": set(),
        "log_config": {"config_kinds"},
        "files": {"names"},
        "formats": {"files", "log_config", "names"},
        "broker_names": {"config_kinds", "log_config"},
        "broker_config": {"broker_names", "config_kinds", "log_config"},
        "server_properties": {"broker_config", "files", "formats"},
        "segment": {"files", "formats", "names"},
        "epochs": {"files", "formats", "names", "segment"},
        "producers": {"files", "names", "segment"},
        "replace": {"files", "names", "segment"},
        "admission": {"log_config", "producers"},
        "recovery": {"epochs", "files", "formats", "names", "producers", "replace", "segment"},
        "views": {"files", "formats", "log_config", "names", "producers", "replace", "segment"},
        "commits": {"files", "formats", "log_config", "names", "segment", "views"},
        "log": {
            "admission", "commits", "epochs", "files", "log_config", "names", "producers", "recovery",
            "replace", "segment", "views",
        },
        "log_roles": {
            "epochs", "files", "log", "log_config", "names", "producers", "segment", "views",
        },
        "partition_log": {"files", "log", "log_config", "log_roles", "recovery", "segment"},
    },
    "metadata": {
        "fields": set(),
        "records": {"fields"},
        "batches": {"records"},
        "image": {"records"},
        "changes": {"image", "records"},
        "snapshot": {"batches", "image", "records"},
        "reader": {"batches", "image", "records", "snapshot"},
        "store": {"batches", "image", "reader", "records", "snapshot"},
    },
    "inspect": {
        "result": set(),
        "file": set(),
        "check": {"file"},
        "partition": {"file", "check"},
        "range": {"file", "partition"},
        "count": {"file", "partition", "range"},
        "latest": set(),
        "scan": {"file", "latest", "partition", "range"},
        "verify": {"file", "check", "partition"},
    },
    "rewrite": {
        "limits": set(),
        "space": set(),
        "batch": set(),
        "source": set(),
        "cleaned": set(),
        "staged": {"cleaned"},
        "remote": {"source"},
        "rewriter": {"cleaned", "limits", "source"},
        "plan": set(),
        "header_tally": set(),
        "manifest": {"header_tally"},
        "upgrade_v07": {"limits"},
        "undo": {"limits", "manifest"},
        "operation": {"limits", "manifest", "plan", "rewriter", "source", "undo"},
        "compact": {"batch", "limits", "operation", "plan", "remote", "rewriter", "source", "space"},
        "run": {"limits", "operation", "plan", "rewriter", "space"},
        "batchwise": {"source"},
        "merge": {"batchwise", "compact", "plan", "run"},
        "recompress": {"batchwise", "header_tally", "plan", "run"},
        "upgrade": {"batchwise", "header_tally", "plan", "run"},
        "erase": {"batch", "batchwise", "compact", "plan", "run", "source"},
        "reindex": {"limits"},
        "salvage": {"cleaned", "limits", "space"},
    },
    "manager": {
        "append_gate": set(),
        "root": set(),
        "read": {"root"},
        "write": {"append_gate", "root", "read"},
        "commits": {"append_gate", "root"},
        "attempt": set(),
        "scheduler": set(),
        "upkeep": {"attempt"},
        "open_partitions": {"root", "attempt", "scheduler", "upkeep"},
        "unopened": set(),
        "background": {"append_gate", "root", "attempt", "scheduler", "open_partitions", "unopened"},
        "appender": {"append_gate", "root", "write", "open_partitions"},
        "partition_views": {"root", "read", "commits", "open_partitions"},
        "topic_changes": {"root", "write", "commits", "open_partitions"},
        "rewrites": {"append_gate", "root", "read", "open_partitions", "partition_views"},
        "undoing": {"rewrites"},
        "cleaning": {
            "append_gate", "root", "scheduler", "open_partitions", "partition_views", "rewrites",
        },
        "reindexing": {"rewrites"},
        "rewriting": {"attempt", "reindexing", "rewrites", "undoing"},
        "logs": {
            "append_gate", "root", "read", "write", "commits", "attempt", "scheduler", "open_partitions",
            "background", "appender", "partition_views", "topic_changes", "cleaning",
            "rewrites", "rewriting",
        },
        "commit_pieces": {"root", "commits", "logs"},
        "commit_segments": {"root", "commits", "logs"},
        "upgrading_v07": {"logs", "rewrites"},
    },
    "spark": {
        "java": set(),
        "masters": set(),
        "options": set(),
        "worker": set(),
        "write": {"options", "worker"},
        "read": {"options", "worker", "write"},
        "pushdown": {"options", "read"},
        "source": {"options", "read", "worker", "write"},
        "session": {"java", "masters", "source", "worker"},
        "jobs": {"options", "pushdown", "worker", "write"},
        "__init__": {"pushdown", "session", "source", "worker"},
    },
    "spark.jobs": {
        "run": set(),
        "counting": {"run"},
        "exporting": {"run"},
        "importing": {"run"},
        "mirroring": {"run"},
        "rewriting": {"run"},
        "salvaging": {"run"},
        "verifying": {"run"},
        "__init__": {
            "counting", "exporting", "importing", "mirroring", "rewriting", "salvaging", "verifying",
        },
    },
}  # fmt: skip
MODULES_MAX = 20

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


def part_of(module: str, package: str) -> str | None:
    """The sub-package or module of ``package`` that a module belongs to; None if it lies elsewhere."""
    rest = f"{module}.".removeprefix(f"{PACKAGE}.{package}.")
    if rest == f"{module}.":
        return None
    return rest.split(".")[0] or "__init__"


def part_findings(modules: dict[str, Module]) -> list[str]:
    findings = []
    for package, may_import in WITHIN.items():
        for module in modules.values():
            part = part_of(module.name, package)
            if part is None:
                continue
            if part not in may_import:
                if part != "__init__":
                    findings.append(f"{module.name}: add {part} to the table of {package}")
                continue
            for each in module.imports:
                other = part_of(each.name, package)
                if other not in (None, part, "__init__") and other not in may_import[part]:
                    findings.append(f"{each}: within {package}, {part} may not import {other}")
    return findings


def size_findings(modules: dict[str, Module]) -> list[str]:
    folders = Counter(module.path.parent for module in modules.values())
    return [
        f"{folder.name}: {count} modules, at most {MODULES_MAX}: make sub-packages"
        for folder, count in folders.items()
        if count > MODULES_MAX
    ]


def docstring_findings(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.name} has no docstring: say what it is for"
        for module in modules.values()
        if module.path.suffix == ".py" and not ast.get_docstring(ast.parse(module.path.read_text()))
    ]


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


CHECKS = [
    layer_findings,
    part_findings,
    size_findings,
    docstring_findings,
    purity_findings,
    weight_findings,
    drawer_findings,
]


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
        (
            layer_findings,
            "storage/log/b.py",
            "def f():\n  import stratalog.cli",
            "may not know cli",
        ),
        (layer_findings, "inspect/c.py", "from stratalog import scan", "may not know __init__"),
        (layer_findings, "records/k.pyx", "from stratalog.storage.b cimport x", "know storage"),
        (layer_findings, "attic/d.py", "", "not on the ladder"),
        (
            part_findings,
            "storage/files/f.py",
            "import stratalog.storage.log.g",
            "may not import log",
        ),
        (part_findings, "storage/attic/f.py", "", "add attic to the table of storage"),
        (part_findings, "spark/jobs/run/f.py", "import stratalog.spark.jobs.counting.g", "may not"),
        (docstring_findings, "storage/files/f.py", "import os", "has no docstring"),
        (purity_findings, "records/a.py", "import os", "does no I/O"),
        (purity_findings, "records/a.py", "from os.path import join", "does no I/O"),
        (purity_findings, "records/a.py", "def f():\n  import time", "does no I/O"),
        (purity_findings, "records/a.py", "def f(p):\n  return open(p)", "calls open()"),
        (purity_findings, "protocol/e.py", "async def f(): ...", "never waits"),
        (purity_findings, "records/k.pyx", "from libc.stdio cimport printf", "does no I/O"),
        (purity_findings, "storage/log/b.py", "import asyncio", "asynchronous"),
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
    target.parent.mkdir(exist_ok=True, parents=True)
    target.write_text(text)
    if check is weight_findings and "pyarrow" not in text:
        (tree / PACKAGE / "records/a.py").write_text("import pyarrow as pa")
    assert any(finding in each for each in check(read_modules(tree))), check(read_modules(tree))


def test_folder_with_too_many_modules_is_found(tmp_path):
    tree = _plant(tmp_path)
    for number in range(MODULES_MAX):
        (tree / PACKAGE / f"records/m{number}.py").write_text('"""Fine."""\n')
    assert any("make sub-packages" in each for each in size_findings(read_modules(tree)))


@pytest.mark.parametrize("package", WITHIN)
def test_tables_have_no_cycles(package):
    above: set[str] = set()
    for part, may_import in WITHIN[package].items():
        assert may_import <= above, f"{package}.{part} may import what stands below it in the table"
        above.add(part)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("records/kernel.py", "import os"),
        ("records/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import os"),
        ("__init__.py", "def scan():\n  import pyarrow"),
        ("__init__.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import pyarrow"),
        ("cli/main.py", "import click"),
        ("storage/log/b.py", "import os, time\nfrom stratalog import errors, records"),
        ("storage/log/b.py", "from stratalog.storage.files.f import g"),
        ("broker/f.py", "import asyncio\nfrom stratalog.manager import x"),
    ],
)
def test_allowed_import_is_not_a_finding(tmp_path, path, text):
    tree = _plant(tmp_path)
    target = tree / PACKAGE / path
    target.parent.mkdir(exist_ok=True, parents=True)
    target.write_text(f'"""Fine."""\n{text}')
    modules = read_modules(tree)
    assert [finding for check in CHECKS for finding in check(modules)] == []


def _plant(folder: Path) -> Path:
    for name in ("__init__", "errors", "types", "records/__init__", "records/a", "cli/main"):
        path = folder / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Fine."""\n')
    for name in ("storage", "inspect", "protocol", "manager", "storage/log", "spark/jobs/counting"):
        path = folder / PACKAGE / name / "__init__.py"
        path.parent.mkdir(parents=True)
        path.write_text('"""Fine."""\n')
    return folder
