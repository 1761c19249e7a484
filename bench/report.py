"""How results are told: a table for people, JSON with the facts of the machine for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from bench.harness import Result, shown

PACKAGES = (
    "aiokafka",
    "confluent-kafka",
    "cramjam",
    "kafka-python",
    "numpy",
    "pyarrow",
    "stratalog",
)


def table(results: Sequence[Result]) -> str:
    rows = [("work", "ours", "peer", "peer's", "ratio", "bar", "")]
    for each in results:
        ours = "-" if each.ours is None else shown(each.ours, each.unit)
        theirs = "-" if each.theirs is None else shown(each.theirs, each.unit)
        ratio = "-" if each.ratio is None else f"{each.ratio:.2f} ×"
        state = each.status if each.reason is None else f"{each.status}: {each.reason}"
        bar = each.bar or "-"
        rows.append(
            (f"{each.name}: {each.work}", ours, each.peer or "-", theirs, ratio, bar, state)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = []
    for row in rows:
        left, *figures = [
            cell.ljust(width) if column in (0, 2) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([left, *figures, row[6]]).rstrip())
    return "\n".join(lines)


def machine() -> dict[str, object]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    git = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    root = Path(__file__).parent
    try:
        commit = subprocess.run(
            git, cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": versions,
        "commit": commit,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def write_json(path: Path, results: Sequence[Result], facts: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": facts, "cases": [asdict(each) for each in results]}
    path.write_text(json.dumps(document, indent=2) + "\n")
