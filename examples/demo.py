"""The main job, end to end: orders go into a log; a Spark pipeline reads them as a stream, and writes windows
to another topic and running totals to Parquet, exactly once; it is killed in the middle, and started again.
Then everything is counted.

make demo                                      about a minute after the set-up
make demo ARGS="--orders 2000000 --keep out"   more of them; everything stays in the new folder out
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import stratalog
from stratalog.cli.main import main as stratalog_command
from stratalog.records import kernel

CITIES = ("Berlin", "Paris", "Oslo", "Madrid", "Wien")
ORDERS = 500_000
CUSTOMERS = 200
FIRST_TIME_MS = 1_767_225_600_000
STEP_MS = 20
MINUTE_MS = 60_000
BATCHES = 8
BATCHES_BEFORE_KILL = 3

Windows = dict[str, tuple[int, int]]


@dataclass
class Life:
    """What one life of the pipeline told."""

    pid: int = 0
    first_batch: dict[str, int] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    warm_orders: dict[str, int] = field(default_factory=dict)
    warm_seconds: dict[str, float] = field(default_factory=dict)
    totals: dict[str, tuple[int, ...]] | None = None
    is_killed: bool = False

    def hear(self, line: Mapping[str, Any]) -> str | None:
        """What it said, for people."""
        if "started" in line:
            self.pid = line["started"]
            return f"driver {self.pid} runs, Spark {line['spark']}; the first batches start its workers"
        if "totals" in line:
            self.totals = {name: tuple(numbers) for name, numbers in line["totals"].items()}
            return None
        name = line["query"]
        self.first_batch.setdefault(name, line["batch"])
        self.orders[name] = self.orders.get(name, 0) + line["orders"]
        self.batches[name] = self.batches.get(name, 0) + 1
        if line["batch"] > self.first_batch[name]:  # the first one starts Spark's workers
            self.warm_orders[name] = self.warm_orders.get(name, 0) + line["orders"]
            self.warm_seconds[name] = self.warm_seconds.get(name, 0) + line["seconds"]
        return f"{name:<8} batch {line['batch']:>2}  {line['orders']:>9,} orders  {line['seconds']:>5.1f} s"

    @property
    def is_in_the_middle(self) -> bool:
        done = [self.batches.get(name, 0) for name in ("windows", "totals")]
        return min(done) >= BATCHES_BEFORE_KILL


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--orders", type=int, default=ORDERS)
    options.add_argument(
        "--keep", type=Path, help="work in this folder, which must be new, and leave it"
    )
    given = options.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            line_buffering=True
        )  # each step is seen when it begins, also in a pipe
    if given.orders < 10 * BATCHES:
        options.error(
            f"--orders {given.orders}: at least {10 * BATCHES}, so that there are batches to kill"
        )
    if given.keep is not None and given.keep.exists():
        options.error(f"{given.keep} is there already: name a new folder, or remove it")
    root = given.keep or Path(tempfile.mkdtemp(prefix="stratalog-demo-"))
    try:
        return demonstrate(root.resolve(), given.orders)
    finally:
        if given.keep is None:
            shutil.rmtree(root, ignore_errors=True)
            print(f'{root} is removed; make demo ARGS="--keep FOLDER" leaves it')


def demonstrate(root: Path, count: int) -> int:
    began = time.perf_counter()
    print(f"Stratalog {stratalog.__version__}, kernel {kernel.NAME}, "
          f"CRC32C by {'instruction' if kernel.HARDWARE_CRC else 'table'}")  # fmt: skip
    print(f"\n1  {count:,} orders into a topic of three partitions, {root / 'logs'}")
    written_s = write_orders(root / "logs", count)

    print("\n2  a Spark pipeline on them: windows into a topic, running totals into Parquet")
    lives = [live(root, count, number) for number in (1, 2)]
    if not lives[0].is_killed or lives[1].totals is None:
        print("the pipeline did not live as it should")
        return 1

    print("\n3  the directory, as Apache Kafka could have written it\n\n$ stratalog ls")
    with suppress(SystemExit):
        stratalog_command(["ls", "-o", "table", str(root / "logs")])
    started = time.perf_counter()
    windows = read_windows(root / "logs")
    read_s = time.perf_counter() - started

    print("\n4  what it did, counted\n")
    show_rates(count, written_s, lives, len(windows), read_s)
    wrong = compare_windows(expected_windows(count), windows)
    wrong += compare_totals(expected_totals(count), lives[1].totals)
    for sentence in wrong[:10]:
        print(f"WRONG: {sentence}")
    if not wrong:
        print(f"\nexact: {count:,} orders in {len(windows):,} windows and in the totals of {CUSTOMERS} "
              f"customers, none missing, none twice; {time.perf_counter() - began:.0f} s in all")  # fmt: skip
    return 1 if wrong else 0


# The orders.


def write_orders(logs: Path, count: int) -> float:
    """How many seconds it took, the sync included."""
    logs.parent.mkdir(parents=True, exist_ok=True)
    with stratalog.open(str(logs)) as opened:
        opened.create("orders", 3, retention_ms=-1)
        started = time.perf_counter()
        for batch in make_orders(count):
            opened.append("orders", batch, codec="lz4")
        # The last one comes an hour later: it ends all windows before it.
        late = FIRST_TIME_MS + count * STEP_MS + 60 * MINUTE_MS
        opened.append(
            "orders", [{"value": json.dumps({"city": None, "cents": 0}), "timestamp": late}]
        )
        return time.perf_counter() - started


def order(number: int) -> tuple[str, str, int]:
    """Customer, city, cents."""
    return f"customer-{number * 7919 % CUSTOMERS:03}", CITIES[number % 5], number * 37 % 9_991


def make_orders(count: int) -> Iterator[pa.Table]:
    for first in range(0, count, 50_000):
        numbers = range(first, min(first + 50_000, count))
        orders = [order(n) for n in numbers]
        yield pa.table(
            {
                "key": [customer.encode() for customer, _, _ in orders],
                "value": [
                    b'{"city": "%s", "cents": %d}' % (city.encode(), cents)
                    for _, city, cents in orders
                ],
                "timestamp": [FIRST_TIME_MS + n * STEP_MS for n in numbers],
            }
        )


# The pipeline, as a process.


def live(root: Path, count: int, number: int) -> Life:
    """One life: to the end, or, the first one, to the kill in its middle."""
    print(f"\n   life {number}: Java and Spark start, which takes some ten seconds", flush=True)
    scratch = root / "spark"
    scratch.mkdir(exist_ok=True)
    life = Life()
    errors = root / f"life-{number}.stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("demo_job.py")),
                str(root),
                str(count // BATCHES + 4),
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # what belongs to it can be told by its session
            env=environment(scratch),
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said = life.hear(json.loads(line))
            if said is not None:
                print(f"   {said}", flush=True)
            if number == 1 and life.is_in_the_middle:
                wait_for_batch(root / "checkpoints" / "windows")
                killed = kill_session(process)
                life.is_killed = process.returncode == -signal.SIGKILL
                print(
                    f"   SIGKILL to the driver and its processes, {killed} in all, {under_way(root)}"
                )
                return life
        process.wait()
    finally:
        kill_session(process)
        process.stdout.close()
    if process.returncode:
        for line in causes(errors.read_text(errors="replace"))[-12:]:
            print(f"   {line}")
        print(f"   it ended with exit code {process.returncode}; --keep leaves {errors.name}")
    return life


def causes(text: str) -> list[str]:
    """The lines that say what went wrong, and not where."""
    found = re.findall(r"^(?:Caused by: )?[\w.]+(?:Error|Exception)\b.*", text, re.MULTILINE)
    return list(dict.fromkeys(line[:300] for line in found))


def environment(scratch: Path) -> dict[str, str]:
    """Java for a short life; and its temporary files, and Python's, where they are removed afterwards."""
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    # The path of a Unix socket is short: where the folder's is not, they stay where they are.
    if len(str(scratch)) >= 50:
        return {**os.environ, "SPARK_SUBMIT_OPTS": java}
    java += f" -Djava.io.tmpdir={scratch}"
    return {**os.environ, "SPARK_SUBMIT_OPTS": java, "TMPDIR": str(scratch)}


def kill_session(process: subprocess.Popen[str]) -> int:
    """SIGKILL to the process, its Java and its workers, until none is left; how many there were."""
    killed: set[int] = set()
    for _ in range(100):
        alive = members(process.pid)
        if process.returncode is None:
            alive.append(process.pid)
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(alive)
        process.wait()
        if not alive:
            break
        time.sleep(0.1)
    return len(killed)


def members(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
                if int(owner) == session and state not in "ZX":
                    found.append(int(path.parent.name))
        return found
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, state = line.split()[:2]
        with suppress(OSError):
            if os.getsid(int(pid)) == session and not state.startswith("Z"):
                found.append(int(pid))
    return found


def unfinished(checkpoint: Path) -> list[int]:
    """The batches that Spark has begun and not finished."""
    begun, done = (
        {int(path.name) for path in (checkpoint / name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    return sorted(begun - done)


def wait_for_batch(checkpoint: Path) -> None:
    """Until the next batch has begun, and a moment more."""
    for _ in range(200):
        if unfinished(checkpoint):
            break
        time.sleep(0.02)
    time.sleep(0.2)


def under_way(root: Path) -> str:
    batches = {name: unfinished(root / "checkpoints" / name) for name in ("windows", "totals")}
    told = [f"batch {numbers[0]} of {name}" for name, numbers in batches.items() if numbers]
    return f"in the middle of {' and '.join(told)}" if told else "between two batches"


# What must come out, and what did.


def expected_windows(count: int) -> Windows:
    windows: Windows = {}
    for number in range(count):
        _, city, cents = order(number)
        at = FIRST_TIME_MS + number * STEP_MS
        key = f"{at - at % MINUTE_MS} {city}"
        orders, total = windows.get(key, (0, 0))
        windows[key] = (orders + 1, total + cents)
    return windows


def read_windows(logs: Path) -> list[tuple[str, tuple[int, int]]]:
    """All records of the topic, without Spark."""
    with stratalog.open(str(logs), read_only=True) as opened:
        found = []
        for record in opened.read("windows").records():
            assert record.key is not None
            assert record.value is not None
            value = json.loads(record.value)
            found.append((record.key.decode(), (value["orders"], value["cents"])))
    return found


def compare_windows(expected: Windows, found: list[tuple[str, tuple[int, int]]]) -> list[str]:
    """What differs, in sentences."""
    names = [name for name, _ in found]
    wrong = [
        f"window {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    wrong += [f"window {name} is missing" for name in sorted(expected.keys() - set(names))]
    for name, numbers in found:
        if expected.get(name) != numbers:
            wrong.append(f"window {name} has {numbers}, not {expected.get(name)}")
    return wrong


def expected_totals(count: int) -> dict[str, tuple[int, int]]:
    """Orders and cents of each customer."""
    totals: dict[str, tuple[int, int]] = {}
    for number in range(count):
        customer, _, cents = order(number)
        orders, total = totals.get(customer, (0, 0))
        totals[customer] = (orders + 1, total + cents)
    return totals


def compare_totals(
    expected: Mapping[str, tuple[int, int]], found: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Every order has a number of its own, from 1 on, and the last total is the sum."""
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    for name, numbers in found.items():
        orders, cents = expected.get(name, (0, 0))
        if numbers != (orders, orders, orders, cents, cents):
            wrong.append(f"{name} has {numbers}, not {orders} orders of {cents} cents")
    return wrong


def show_rates(
    count: int, written_s: float, lives: list[Life], windows: int, read_s: float
) -> None:
    print(f"{'':<44}{'records':>10}{'rate':>14}")
    print(rate_line("orders appended and synced", count + 1, (count + 1) / written_s))
    steps = {
        "windows": "log → windows by city → log",
        "totals": "log → state by customer → Parquet",
    }
    for query, what in steps.items():
        for number, life in enumerate(lives, 1):
            first = life.first_batch[query]
            rate = life.warm_orders[query] / life.warm_seconds[query]
            batches = f"batches {first} to {first + life.batches[query] - 1}"
            print(rate_line(f"{what}, life {number}", life.orders[query], rate, batches))
    print(rate_line("windows read back, without Spark", windows, windows / read_s))
    print(
        "the two queries share the cores; a rate leaves out the first batch of a life, which starts workers"
    )


def rate_line(what: str, records: int, rate: float, note: str = "") -> str:
    return f"{what:<44}{records:>10,}{rate:>12,.0f}/s  {note}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
