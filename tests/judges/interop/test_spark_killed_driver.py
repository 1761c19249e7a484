"""A real driver is killed under its running query, started again, and killed again; each row comes out once.

Two pipelines, each from a log through Structured Streaming into another log: a plain copy, and counts of
windows with a watermark. Every second kill hits the commit itself, before one of its calls of the system or
behind its last one; the others come at any moment. Either all processes die at once, or only the driver does,
and whoever worked for it is left to notice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import stratalog
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.files.filesystem import OsFileSystem
from tests.judges.interop.spark_processes import (
    command_line,
    environment,
    kill_session,
    of_session,
    quick_home,
    wait_for,
)
from tests.scale import SCALE

pytest.importorskip("pyspark")

ROWS = 60_000
PARTITIONS = 2
ROWS_PER_BATCH = 120
KEYS = 20
FIRST_MS, STEP_MS = 1_700_000_000_000, 10
#: As many calls as a commit of two partitions makes; and those of them from the promise to its end.
CALLS, PROMISED_CALLS = (1, 75), (17, 32)


class World:
    """A source, a target, a checkpoint, and a driver that lives again and again."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.kind = kind
        self.quick = quick_home()
        self.folder = folder
        self.random = Random(f"{kind} {seed}")
        self.source, self.target = folder / "source", folder / "target"
        self.checkpoint = folder / "checkpoint"
        self.order = folder / "kill.json"
        self.kills: Counter[str] = Counter()
        self.drivers: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True)
        with stratalog.open(str(self.source)) as logs:
            logs.create("in", PARTITIONS)
            for number in range(PARTITIONS):
                rows = [
                    {"key": f"key {n % KEYS}", "value": str(n), "timestamp": FIRST_MS + STEP_MS * n}
                    for n in range(number, ROWS, PARTITIONS)
                ]
                logs.append("in", rows, partition=number)
        self.before = self.read_source()

    def read_source(self) -> list[Any]:
        with stratalog.open(str(self.source), read_only=True) as logs:
            return list(logs.read("in").records())

    # One life.

    def start(self, rows_per_batch: int) -> subprocess.Popen[bytes]:
        arguments = (self.source, self.target, self.checkpoint, self.kind, rows_per_batch)
        with (self.folder / "driver.log").open("ab") as said:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark_programs.copy_stream", *map(str, arguments)],
                cwd=self.folder,
                env={
                    **os.environ,
                    **environment(self.folder),
                    **self.quick,
                    "STRATALOG_TEST_KILL": str(self.order),
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.drivers.append(driver)
        return driver

    def noted(self, name: str) -> int:
        """The last batch that Spark has written down there; -1 where there is none."""
        try:
            names = [path.name for path in (self.checkpoint / name).iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(each) for each in names if each.isdigit()), default=-1)

    def one_life(self, *, in_commit: bool) -> None:
        if in_commit:
            batch = self.noted("commits") + 1 + self.random.randrange(3)
            call = self.random.randint(*self.random.choice((CALLS, PROMISED_CALLS)))
            self.order.write_text(json.dumps({"who": "session", "batch": batch, "call": call}))
            driver = self.start(ROWS_PER_BATCH)
            assert not self.comes(driver, lambda: False)
            done = self.order.with_name("kill.json.done")
            assert done.exists(), self.last_words()
            done.unlink()
            self.kills["in the commit"] += 1
            return
        which = self.random.choice(("offsets", "commits"))
        until = self.noted(which) + self.random.randint(1, 4)
        driver = self.start(ROWS_PER_BATCH)
        assert self.comes(driver, lambda: self.noted(which) >= until), self.last_words()
        time.sleep(self.random.random() / 2)
        self.kill(driver)
        driver.wait()

    def comes(self, driver: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> bool:
        """Whether it is so before the driver ends."""
        wait_for("the driver", lambda: is_so() or driver.poll() is not None, 300)
        return driver.returncode is None

    def kill(self, driver: subprocess.Popen[bytes]) -> None:
        if self.random.random() < 0.5:
            kill_session(driver.pid)
            self.kills["all at once"] += 1
            return
        # Whoever worked for it may still be at it when the next driver starts.
        for pid in of_session(driver.pid):
            if pid == driver.pid or "org.apache.spark.deploy.SparkSubmit" in command_line(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.kills["the driver alone"] += 1

    def end_all(self) -> None:
        for driver in self.drivers:
            kill_session(driver.pid)
            driver.wait()

    def last_words(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-3000:]

    # What must be.

    def written(self) -> list[tuple[bytes, bytes]]:
        if not self.target.exists():
            return []
        with stratalog.open(str(self.target), read_only=True) as logs:
            if "out" not in logs.topics():
                return []
            return [(r.key or b"", r.value or b"") for r in logs.read("out").records()]

    def check_whole_batches(self) -> None:
        """A reader after a kill sees batches entirely or not at all: of a copy, it can be told."""
        if self.kind != "copy":
            return
        found = sorted(int(value) for _, value in self.written())
        last = self.noted("offsets")
        for batch in range(max(-1, last - 2), last + 1):
            ends = self.ends(batch)
            rows = sorted(
                n
                for p in range(PARTITIONS)
                for n in range(p, ROWS, PARTITIONS)[: ends.get(str(p), 0)]
            )
            if found == rows:
                return
        pytest.fail(f"{len(found)} rows are those of no batch up to {last}")

    def ends(self, batch: int) -> dict[str, int]:
        if batch < 0:
            return {}
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return dict(json.loads(lines[-1])["in"])

    def check_end(self) -> None:
        assert self.read_source() == self.before, "the source has changed"
        found = self.written()
        if self.kind == "copy":
            assert len(found) == ROWS
            assert {int(value): key for key, value in found} == {
                n: b"key %d" % (n % KEYS) for n in range(ROWS)
            }
        else:
            assert windows_of(found) == expected_windows()
        assert list(self.target.glob("stratalog-piece*")) == []
        assert read_journal(OsFileSystem(), str(self.target)).open == ()

    def run(self, kills: int) -> Counter[str]:
        try:
            for life in range(kills):
                self.one_life(in_commit=life % 2 == 1)
                self.check_whole_batches()
            last = self.start(0)
            assert not self.comes(last, lambda: False)
            assert last.returncode == 0, self.last_words()
            self.end_all()
            self.check_end()
        except BaseException as error:
            error.add_note(f"{self.kind}: after {dict(self.kills)}, {self.order.parent}")
            raise
        finally:
            self.end_all()
        return self.kills


def windows_of(found: list[tuple[bytes, bytes]]) -> Counter[tuple[str, int, int, int]]:
    rows = []
    for key, value in found:
        window = json.loads(value)
        rows.append((key.decode(), window["start"], window["count"], window["sum"]))
    return Counter(rows)


def expected_windows() -> Counter[tuple[str, int, int, int]]:
    """Those that the watermark has closed, which stays a second behind the latest time of all."""
    closed = (FIRST_MS + STEP_MS * (ROWS - 1) - 1000) // 1000
    counts: dict[tuple[str, int], list[int]] = {}
    for n in range(ROWS):
        start = (FIRST_MS + STEP_MS * n) // 1000
        if start + 1 <= closed:
            counts.setdefault((f"key {n % KEYS}", 1000 * start), []).append(n)
    return Counter((*window, len(found), sum(found)) for window, found in counts.items())


def run_worlds(folder: Path, seed: int, kills: int) -> Counter[str]:
    """Both pipelines side by side, each with so many kills."""
    worlds = [World(folder / kind, kind, seed) for kind in ("copy", "windows")]
    with ThreadPoolExecutor(len(worlds)) as pool:
        return sum(pool.map(lambda world: world.run(kills), worlds), Counter())


@pytest.mark.interop
def test_each_row_comes_out_once_over_a_dozen_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kills = run_worlds(tmp_path, seed=1, kills=6)
    assert kills.total() == 12
    for name, count in kills.items():
        record_property(f"counted: kills of a Spark driver, {name}", count)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_each_row_comes_out_once_over_a_thousand_kills(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    for name, count in run_worlds(tmp_path, seed=100 + seed, kills=max(2, SCALE // 2)).items():
        record_property(f"counted: kills of a Spark driver, {name}", count)
