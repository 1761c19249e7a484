"""Files: what a user waits for at the command line, against Kafka's own tool and the bytes' own speed."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import stratalog
from bench.harness import Bar, Setup, Skip, Workload, case
from bench.logs import write_log
from stratalog.inspect.verify import verify_file
from stratalog.records import kernel

GIB = 1 << 30
PER_BATCH = 150
CLI = [sys.executable, "-m", "stratalog"]


def run(command: list[str]) -> Callable[[], object]:
    def call() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    return call


def segment(setup: Setup, value_size: int = 100) -> Path:
    """A segment of 1 GiB in batches of about 16 KiB, in the page cache."""
    per_batch = PER_BATCH if value_size == 100 else 16
    path, _ = write_log(
        setup.folder, setup.scaled(GIB), value_size=value_size, records_per_batch=per_batch
    )
    return path


def dump_log(path: Path, *options: str, class_archive: bool = False) -> Callable[[], object]:
    """Kafka's own tool with the flags that Kafka's scripts start it with. They make no class archive;
    the test harness has one, which halves the start of the JVM."""
    from tests.judges.kafka import oracle

    try:
        kafka = oracle.fetch()
    except oracle.OracleUnavailable as reason:
        raise Skip(str(reason)) from reason
    command = kafka.java(
        kafka.main_class("dump-log"),
        [*options, "--files", str(path)],
        log_config=kafka.home / "tool-log4j2.properties",
        profile="server",
    )
    if not class_archive:
        command = [part for part in command if not part.startswith("-XX:SharedArchiveFile")]
    return run(command)


@case(
    "count-1g",
    work="stratalog count of a 1 GiB file, start-up included",
    unit="s",
    peer="Kafka's dump-log",
    bar=Bar(ratio=10),
    pinned=False,
    rounds_max=3,
)
def count_1g(setup: Setup) -> Workload:
    path = segment(setup)
    return Workload(ours=run([*CLI, "count", str(path)]), peer=dump_log(path))


@case(
    "count-1g-archive",
    work="stratalog count of a 1 GiB file, start-up included",
    unit="s",
    peer="Kafka's dump-log, its start helped by a class archive",
    pinned=False,
    rounds_max=3,
)
def count_1g_archive(setup: Setup) -> Workload:
    path = segment(setup)
    return Workload(ours=run([*CLI, "count", str(path)]), peer=dump_log(path, class_archive=True))


@case(
    "verify-1g",
    work="stratalog verify of a 1 GiB file, start-up included",
    unit="s",
    peer="Kafka's dump-log --deep-iteration",
    bar=Bar(ratio=10),
    pinned=False,
    rounds_max=3,
)
def verify_1g(setup: Setup) -> Workload:
    path = segment(setup)
    return Workload(ours=run([*CLI, "verify", str(path)]), peer=dump_log(path, "--deep-iteration"))


@case(
    "verify-file",
    work="verify a 1 GiB file: CRC, order, counts",
    unit="B/s",
    peer="CRC32C alone over the same file, mapped",
)
def verify_1g_inside(setup: Setup) -> Workload:
    path = segment(setup)

    def crc_alone() -> None:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as region:
            kernel.crc32c(region)

    return Workload(ours=lambda: verify_file(str(path)), peer=crc_alone, amount=path.stat().st_size)


@case(
    "verify-file-memory",
    work="verify a 1 GiB file: CRC, order, counts",
    unit="B/s",
    peer="CRC32C alone over the same bytes, in memory already",
    bar=Bar(ratio=0.6),
)
def verify_1g_memory(setup: Setup) -> Workload:
    path = segment(setup)
    data = path.read_bytes()
    return Workload(
        ours=lambda: verify_file(str(path)), peer=lambda: kernel.crc32c(data), amount=len(data)
    )


@case("scan-file", work="scan of a 1 GiB file, 1 KiB values → Arrow, CRC checked", unit="B/s",
      peer="reading the file into a warm buffer")  # fmt: skip
def scan_file(setup: Setup) -> Workload:
    path = segment(setup, 1024)
    buffer = bytearray(1 << 20)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return Workload(
        ours=lambda: sum(batch.num_rows for batch in stratalog.scan(path)),
        peer=read,
        amount=path.stat().st_size,
    )


def scan_linearly(times: int) -> Callable[[Setup], Workload]:
    def prepare(setup: Setup) -> Workload:
        path = segment(setup)
        paths = []
        for number in range(times):
            folder = setup.folder / f"copy{number}-0"
            folder.mkdir()
            os.link(path, folder / path.name)
            paths.append(folder / path.name)

        def scanned(files: list[Path]) -> Callable[[], int]:
            return lambda: sum(batch.num_rows for batch in stratalog.scan(files))

        size = path.stat().st_size
        return Workload(
            ours=scanned(paths), peer=scanned(paths[:1]), amount=size * times, peer_amount=size
        )

    return prepare


for gibibytes in (2, 4):
    case(
        f"scan-{gibibytes}g-linear",
        work=f"scan of {gibibytes} GiB, 100-byte values → Arrow",
        unit="B/s",
        peer="the same for 1 GiB",
        bar=Bar(ratio=0.85),
        rounds_max=5,
    )(scan_linearly(gibibytes))


MEMORY = """
import re, sys
import pyarrow
import stratalog
from stratalog.records import arrow

def kibibytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])

small, large = sys.argv[1:]
sum(batch.num_rows for batch in stratalog.scan(small))
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew from here
before = kibibytes("VmRSS")
sum(batch.num_rows for batch in stratalog.scan(large))
print((kibibytes("VmHWM") - before) * 1024)
"""


@case(
    "scan-memory",
    work="peak memory of a scan of 1 GiB, mapped windows included",
    unit="B",
    bar=Bar(at_most=64 << 20),
    rounds_max=1,
)
def scan_memory(setup: Setup) -> Workload:
    if not Path("/proc/self/clear_refs").exists():
        raise Skip("the peak of a process is read from /proc, which only Linux has")
    path = segment(setup)
    empty = setup.folder / "empty.log"
    empty.touch()

    def measured() -> float:
        command = [sys.executable, "-c", MEMORY, str(empty), str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout)

    return Workload(ours=measured)


@case(
    "import",
    work="import stratalog, above starting Python",
    unit="ms",
    bar=Bar(at_most=50),
    rounds_max=9,
)
def import_time(_: Setup) -> Workload:
    code = "import time; t = time.perf_counter(); import stratalog; print(time.perf_counter() - t)"

    def measured() -> float:
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        return float(done.stdout) * 1e3

    return Workload(ours=measured)


@case(
    "start-cat",
    work="stratalog cat of a small file, from start to end",
    unit="s",
    peer="python -c pass",
    bar=Bar(at_most=0.15),
    rounds_max=9,
)
def start_cat(setup: Setup) -> Workload:
    path, _ = write_log(setup.folder, 1000, value_size=100, records_per_batch=5)
    return Workload(
        ours=run([*CLI, "cat", "-o", "ndjson", "-n", "10", str(path)]),
        peer=run([sys.executable, "-c", "pass"]),
    )
