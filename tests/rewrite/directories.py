"""Log directories to rewrite, and what is in them, record for record."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import stratalog
from stratalog.manager.rewrites import RewriteOptions
from tests.cli.runner import run
from tests.judges.peers.golden import GoldenSet

COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
SMALL = {"internal.segment.bytes": 2048}
ROLLED = RewriteOptions(roll=True)

Row = tuple[Any, ...]


def rows(*paths: Path, **how: Any) -> list[Row]:
    """Every record below these paths, in the order of topics, partitions and offsets."""
    found: list[Row] = []
    for batch in stratalog.scan([str(path) for path in paths], columns=COLUMNS, **how):
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        found += [
            (*plain, tuple((each["key"], each["value"]) for each in headers))
            for *plain, headers in zip(*columns, strict=True)
        ]
    return sorted(found, key=lambda row: row[:3])


def copy_of(golden: GoldenSet, folder: Path) -> list[Path]:
    """Copy the log directories of a golden set, recovered and closed in order."""
    copies = []
    for number, source in enumerate(golden.log_dirs):
        copy = folder / f"logs-{number}"
        shutil.copytree(source, copy)
        copies.append(copy)
        with stratalog.open(copy, on_damage="cut", on_recovery=lambda *_: None) as logs:
            logs.recover()
    return copies


def is_sound(*paths: Path) -> bool:
    """Return whether ``verify --deep`` finds nothing."""
    return run("verify", "--deep", *paths).code == 0


def filled(folder: Path, count: int = 150, **configs: Any) -> Path:
    """A log directory with a topic of small segments, several codecs, and keys that repeat."""
    with stratalog.open(folder) as logs:
        logs.create("t", 1, {**SMALL, **configs})
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * 6):
            first = number * count // 30
            last = (number + 1) * count // 30
            some = [
                {
                    "key": b"k%d" % (n % 20) if n % 7 else None,
                    "value": b"value %d" % n * 12 if n % 11 else None,
                    "headers": [("user", b"u%d" % (n % 5)), ("user", b"x")][: n % 3],
                    "timestamp": 1_700_000_000_000 + n,
                }
                for n in range(first, last)
            ]
            logs.append("t", some, codec=codec, sync=False)
    return folder
