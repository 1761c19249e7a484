"""A mapped file that its owner cuts short gives an error, not the end of the process.

The scenarios run in a process of their own: if the guard fails, SIGBUS ends that one and the test says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SETUP = """
import faulthandler, mmap, os, sys, threading
from array import array
from stratalog.records import _kernel as kernel
from stratalog.records.builder import build_batch
from stratalog.records.layout import ROW_WIDTH, Check, Column
from stratalog.records.model import Record

batch = build_batch([Record(value=b"x" * 1000) for _ in range(50)])
data = b"".join(batch for _ in range(20))

def mapped(path):
    with open(path, "wb") as file:
        file.write(data)
    with open(path, "r+b") as file:
        region = mmap.mmap(file.fileno(), len(data), prot=mmap.PROT_READ)
    return region

def lost(work, region):
    try:
        work(region)
    except BufferError as error:
        return "cut short" in str(error)
    return False

def count(region):
    return kernel.count(region, 0, len(data), Check.CRC, guarded=True)

def fill(region):
    columns = kernel.Columns(sum(Column), Check.CRC)
    return columns.fill(region, 0, len(data), guarded=True)

def walk(region):
    rows = array("q", bytes(8 * ROW_WIDTH * 100))
    return kernel.walk(region, 0, len(data), memoryview(rows), guarded=True)

def copy(region):
    return kernel.copy(region, 0, len(data), guarded=True)

def search(region):
    return kernel.search_entries(region, len(data) // 8, 8, 0, 4, 2**62, guarded=True)

def zeros(region):  # the first page is still there: from the second on
    return kernel.zero_run(region, 5000, len(data), guarded=True)

path = sys.argv[1]
region = mapped(path)
assert count(region)[0] == 1000 and fill(region) and walk(region)[0] == 20
assert copy(region) == data
assert search(region) == len(data) // 8 - 1 and zeros(region) == 5000
"""


def run(body: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETUP + body, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("work", ["count", "fill", "walk", "copy", "search", "zeros"])
def test_a_file_cut_short_under_a_mapping_gives_an_error(work: str, tmp_path: Path) -> None:
    run(
        f"os.truncate(path, 4096)\nassert lost({work}, region)\nassert lost({work}, region)",
        tmp_path / "a",
    )


def test_the_guard_works_after_another_took_the_signal(tmp_path: Path) -> None:
    run("faulthandler.enable()\nos.truncate(path, 0)\nassert lost(count, region)", tmp_path / "a")


def test_rows_from_before_the_loss_stay(tmp_path: Path) -> None:
    run(
        """
columns = kernel.Columns(int(Column.VALUE), Check.CRC)
columns.fill(region, 0, 2 * len(batch), guarded=True)
rows = columns.rows
os.truncate(path, 4096)
columns.expected = -1
assert lost(lambda r: columns.fill(r, 0, len(batch), guarded=True), region)
assert rows == columns.rows == 100
assert bytes(columns.take()[1][Column.VALUE][2]) == b"x" * 100_000
""",
        tmp_path / "a",
    )


def test_threads_lose_their_own_mappings_only(tmp_path: Path) -> None:
    run(
        """
healthy = mapped(path + "b")
os.truncate(path, 0)
results = []
def bad():
    for _ in range(200):
        results.append(lost(count, region))
def good():
    for _ in range(200):
        results.append(count(healthy)[0] == 1000)
threads = [threading.Thread(target=each) for each in (bad, good, bad, good)]
[each.start() for each in threads]
[each.join() for each in threads]
assert len(results) == 800 and all(results)
""",
        tmp_path / "a",
    )


def test_a_bus_error_from_elsewhere_still_ends_the_process(tmp_path: Path) -> None:
    """The guard takes only what happens in its own region: a real bug must not be swallowed."""
    body = "assert count(region)\nos.truncate(path, 0)\nregion[5000]"
    done = subprocess.run(
        [sys.executable, "-c", SETUP + body, str(tmp_path / "a")], capture_output=True, check=False
    )
    assert done.returncode < 0
