"""A writer is killed again and again on the real machine; what it acknowledged is there each time.

Goal: kill -9 alone never loses an acknowledged record, synced or not, and none is there twice (D3, P1).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from stratalog.records.columns import decode_records
from stratalog.storage.partition_log import PartitionLog
from tests.crash.promises import contents
from tests.crash.writer import PRODUCER, opened
from tests.scale import SCALE, fresh, sized

pytestmark = [pytest.mark.scaled, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CYCLES = sized(3, 8 * SCALE)


def start_writer(root: Path, mode: str, seed: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", str(root), mode, seed],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        bufsize=0,  # what is read ahead would be lost to whoever reads the rest
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def acknowledged(writer: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """Up to ``count`` lines of a writer; fewer where it ends."""
    assert writer.stdout is not None
    lines: list[bytes] = []
    while len(lines) < count and (line := writer.stdout.readline()):
        lines.append(line)
    return lines


def rest_of(writer: subprocess.Popen[bytes]) -> list[bytes]:
    """What a writer still told before its end. A line that was cut off is none."""
    output, errors = writer.communicate()
    assert not errors or b"Traceback" not in errors, errors.decode()
    return [line for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


def note(told: dict[int, str], lines: list[bytes]) -> int:
    for line in lines:
        offset, value = line.decode().split(" ", 1)
        assert int(offset) not in told, f"offset {offset} was given twice"
        told[int(offset)] = value.rstrip("\n")
    return len(lines)


def check_log(root: Path, told: dict[int, str]) -> None:
    """Every told record is where it was told to be, there is no hole, and the producer is known."""
    keeper = opened(str(root))
    try:
        check_records(keeper.log, told)
    finally:
        keeper.abandon()


def check_records(log: PartitionLog, told: dict[int, str]) -> None:
    values = {r.offset: (r.value or b"").decode() for r in decode_records(contents(log))}
    lost = [offset for offset, value in told.items() if values.get(offset) != value]
    assert not lost, f"{len(lost)} acknowledged records are lost, from offset {min(lost)} on"
    assert list(values) == list(range(log.log_end)), "there is a hole"
    assert len(set(values.values())) == len(values), "a record is there twice"
    if values:
        (entry,) = log.producers
        assert (entry.producer_id, entry.last_sequence) == (PRODUCER, log.log_end - 1)
    for offset, value in values.items():
        told.setdefault(offset, value)  # what was in flight and came through stays from now on


@pytest.mark.parametrize("mode", ["sync", "unsynced"])
def test_nothing_acknowledged_is_lost_by_kill(
    tmp_path: Path, mode: str, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "t-0").mkdir()
    random, told, count = Random(fresh(5)), dict[int, str](), 0
    for cycle in range(CYCLES):
        writer = start_writer(tmp_path, mode, f"{mode}{cycle}")
        try:
            count += note(told, acknowledged(writer, random.randint(1, 150)))
            time.sleep(random.random() / 100)
        finally:
            writer.kill()
        count += note(told, rest_of(writer))
        try:
            check_log(tmp_path, told)
        except AssertionError as error:
            error.add_note(f"after kill {cycle + 1}, mode {mode}, Random({fresh(5)})")
            raise
    assert count >= CYCLES
    record_property("counted: kills of a process, no acknowledged record lost", CYCLES)
