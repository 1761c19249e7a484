"""The golden sets under `tests/golden` as values: folders, expected records, Kafka's own dumps.

A *set* is one folder that a real broker wrote (see `tests/golden/README.md` and `README-old.md`).

    for golden in golden_sets():
        for partition in golden.partitions():
            for segment in partition.segments:
                batches = golden.dump_of(segment).batches     # what Kafka says is in the file
        golden.expected()                                     # what the whole set must read as
"""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judges.peers.dump_log import DumpBatch, DumpFile, parse_dump

GOLDEN_DIR = Path(__file__).resolve().parents[2] / "golden"


@dataclass(frozen=True, slots=True)
class GoldenPartition:
    topic: str
    partition: int
    dir: Path
    segments: tuple[Path, ...]
    """The `.log` (0.7: `.kafka`) files in offset order."""


@dataclass(frozen=True, slots=True)
class GoldenSet:
    name: str
    path: Path
    about: dict[str, Any]
    """`set.json`, or `counts.json` of the sets in old formats."""
    damaged: bool
    """The files hold damage or a zero tail; `expected()` is what Kafka's recovery saved."""
    log_dirs: tuple[Path, ...]

    def partitions(self) -> list[GoldenPartition]:
        """Every partition folder, ordered by topic and partition."""
        return _partitions_in(self.log_dirs)

    def recovered(self) -> list[GoldenPartition]:
        """The partitions after Kafka's own recovery; empty for sets that were stopped in order."""
        folder = self.path / "recovered"
        return _partitions_in((folder,)) if folder.is_dir() else []

    def expected(self, *, committed: bool = False) -> list[dict[str, Any]]:
        """The lines of `expected.jsonl` (or `expected-committed.jsonl`), as they stand."""
        name = "expected-committed.jsonl" if committed else "expected.jsonl"
        with (self.path / name).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @property
    def has_committed(self) -> bool:
        return (self.path / "expected-committed.jsonl").exists()

    @property
    def is_v07(self) -> bool:
        return self.name.startswith("v07-")

    def log_start_offset(self, topic: str, partition: int) -> int:
        return self._bounds(topic, partition)[0]

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self._bounds(topic, partition)[1]

    def dumps(self) -> list[DumpFile]:
        """`dump-log.txt`, file by file, in the order of the dump."""
        return list(_parsed_dumps(self.path).values())

    def dump_of(self, segment: Path) -> DumpFile:
        return _parsed_dumps(self.path)[segment.relative_to(self.path).as_posix()]

    def dump_batches(self, segment: Path) -> tuple[DumpBatch, ...]:
        return self.dump_of(segment).batches

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        if "set" in self.about:
            for entry in self.about["partitions"]:
                if (entry["topic"], entry["partition"]) == (topic, partition):
                    return entry["log_start_offset"], entry["log_end_offset"]
            raise KeyError(f"{topic}-{partition} is not in {self.name}")
        if self.is_v07:
            return 0, self.about["partitions"][f"{topic}-{partition}"]["log_end_offset"]
        low, high = self.about["topics"][topic]["watermarks"][partition]
        return low, high


def golden_sets(prefix: str = "") -> list[GoldenSet]:
    """Every set whose name starts with `prefix`, ordered by name."""
    return [_golden_set(path) for path in sorted(GOLDEN_DIR.glob(prefix + "*/")) if path.is_dir()]


def golden_set(name: str) -> GoldenSet:
    return _golden_set(GOLDEN_DIR / name)


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    """A line of `expected.jsonl` with its base64 turned into bytes and headers into tuples."""
    return {
        **row,
        "key": _bytes(row["key"]),
        "value": _bytes(row["value"]),
        "headers": tuple((key, _bytes(value)) for key, value in row["headers"]),
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _golden_set(path: Path) -> GoldenSet:
    described = path / "set.json"
    if not described.exists():
        described = path / "counts.json"
    about = json.loads(described.read_text(encoding="utf-8"))
    data_dirs = sorted(path.glob("data-*/"))
    return GoldenSet(
        name=path.name,
        path=path,
        about=about,
        damaged=bool(about.get("damaged", False)),
        log_dirs=tuple(data_dirs) or (path,),
    )


def _partitions_in(log_dirs: tuple[Path, ...]) -> list[GoldenPartition]:
    found = []
    for log_dir in log_dirs:
        for folder in log_dir.iterdir():
            topic, dash, number = folder.name.rpartition("-")
            if not (folder.is_dir() and dash and number.isdigit()):
                continue
            segments = sorted([*folder.glob("*.log"), *folder.glob("*.kafka")])
            found.append(GoldenPartition(topic, int(number), folder, tuple(segments)))
    return sorted(found, key=lambda part: (part.topic, part.partition))


@functools.cache
def _parsed_dumps(set_path: Path) -> dict[str, DumpFile]:
    return parse_dump((set_path / "dump-log.txt").read_bytes(), set_path)
