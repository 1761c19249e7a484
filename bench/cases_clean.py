"""Compaction against Apache Kafka's own cleaner on the same directory, and what it costs others."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path
from statistics import quantiles

from bench.harness import Bar, Setup, Skip, Workload, case
from stratalog.records import kernel
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.layout import Codec
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_log
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog

MIB = 1 << 20
GIB = 1 << 30
DEDUPE_BYTES = 128 * MIB
UPDATES = 10
#: Kafka cleans so many copies, one after the other; the last is cleaned by warm code.
COPIES = 4
_TIMESTAMP = 1_700_000_000_000


def keyed_rows(count: int, keys: int, value_size: int, seed: int, *, text: bool) -> kernel.Rows:
    """Rows whose keys are drawn from so many, evenly."""
    rng = random.Random(seed)
    names = b"".join(b"key-%010d" % rng.randrange(keys) for _ in range(count))
    value = rng.randbytes(value_size // 2) + b"x" * (value_size - value_size // 2)
    values = value * count if text else rng.randbytes(value_size * count)
    return kernel.Rows(
        count,
        timestamps=(None, array("q", range(_TIMESTAMP, _TIMESTAMP + count)), 0),
        key=(None, array("i", range(0, 14 * (count + 1), 14)), names, 0),
        value=(None, array("i", range(0, value_size * (count + 1), value_size)), values, 0),
    )


def config_of(size: int) -> LogConfig:
    return LogConfig.of(
        {
            "internal.segment.bytes": max(size // 4, MIB),
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "max.message.bytes": 4 * MIB,
            "file.delete.delay.ms": 0,
        }
    )


def write_dirty(folder: Path, size: int, value_size: int, codec: Codec) -> Path:
    """A partition with ten updates of each key, closed in order; its last segment is small."""
    folder.mkdir(parents=True)
    log = PartitionLog.open(str(folder), config_of(size), watermark="written")
    keys = max(size // (value_size + 30) // UPDATES, 1)
    options = BatchOptions(codec=codec, batch_bytes=16384)
    seed = 0
    written = 0
    while written < size:
        builder = BatchBuilder(options, next_offset=log.log_end)
        count = 4 * MIB // (value_size + 30)
        builder.append(keyed_rows(count, keys, value_size, seed, text=codec != Codec.NONE))
        log.append_as_follower(bytes(builder.out))
        written += count * (value_size + 30)
        seed += 1
    log.roll()
    builder = BatchBuilder(options, next_offset=log.log_end)
    builder.append(keyed_rows(1, keys, value_size, seed, text=False))
    log.append_as_follower(bytes(builder.out))
    log.close()
    return folder


def linked(source: Path, target: Path) -> Path:
    """A copy by hard links: a cleaning replaces sealed files, and changes none. The last segment, which is
    written to, is copied."""
    target.mkdir()
    last = max(path.name for path in source.glob("*.log")).removesuffix(".log")
    for path in source.iterdir():
        if path.name.startswith(last) or not path.name[:1].isdigit():
            shutil.copy2(path, target / path.name)
        else:
            os.link(path, target / path.name)
    return target


def clean_once(folder: Path, size: int) -> float:
    """Clean a log; return seconds for each GiB of it, without opening and closing it."""
    log = PartitionLog.open(str(folder), config_of(size), is_clean=True, watermark="written")
    now_ms = int(time.time() * 1000)
    checkpoint = UnstoredCheckpoint(log, now_ms=now_ms)
    cleanable_bytes = checkpoint.find().cleanable_bytes
    settings = CleanerSettings(dedupe_bytes=DEDUPE_BYTES)
    started = time.perf_counter()
    clean_log(log, checkpoint, settings, RewriteLimits(), now_ms=now_ms)
    seconds = time.perf_counter() - started
    log.close()
    return seconds * GIB / cleanable_bytes


def clean_by_kafka(setup: Setup, source: Path, number: int) -> float:
    """The seconds for each GiB of log that Kafka's cleaner took for the last of several copies."""
    from tests.judges.kafka import oracle

    try:
        oracle.fetch()
    except oracle.OracleUnavailable as reason:
        raise Skip(str(reason)) from reason
    place = setup.folder / f"kafka-{number}"
    copies = [linked(source, setup.folder / f"dirty-{each}") for each in range(COPIES)]
    broker = oracle.Kafka(
        place,
        profile="server",
        heap="1g",
        config={
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.dedupe.buffer.size": DEDUPE_BYTES,
            "log.initial.task.delay.ms": 100,
        },
    )
    segment_bytes = max(path.stat().st_size for path in source.glob("*.log"))
    try:
        broker.adopt(
            *copies,
            mode="trust",
            topic_config={
                "min.cleanable.dirty.ratio": "0.01",
                "internal.segment.bytes": max(segment_bytes, MIB),
                "max.message.bytes": 4 * MIB,
                "retention.ms": -1,
            },
        )
        broker.tool(
            "configs", "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "topics",
            "--entity-name", "dirty", "--add-config", "cleanup.policy=compact",
        )  # fmt: skip
        figures = wait_for_figures(broker)
    finally:
        broker.kill()
        shutil.rmtree(place, ignore_errors=True)
        for each in copies:
            shutil.rmtree(each)
    return GIB / MIB / figures[-1]


def wait_for_figures(broker: object) -> list[float]:
    """The rates of all cleanings in the broker's log, in MiB per second."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        text = Path(broker.server_log).read_text(errors="replace")  # type: ignore[attr-defined]
        found = re.findall(r"of log processed in [\d.,]+ seconds \(([\d.,]+) MB/sec\)", text)
        if len(found) >= COPIES:
            return [float(each.replace(",", "")) for each in found]
        time.sleep(0.2)
    raise Skip("Kafka did not clean its logs in ten minutes")


def compaction(setup: Setup, value_size: int, codec: Codec) -> Workload:
    size = setup.scaled(GIB)
    source = write_dirty(setup.folder / "dirty-source", size, value_size, codec)
    numbers = iter(range(1 << 30))

    def ours() -> float:
        target = linked(source, setup.folder / f"ours-{next(numbers)}")
        try:
            return clean_once(target, size)
        finally:
            shutil.rmtree(target)

    return Workload(ours=ours, peer=lambda: clean_by_kafka(setup, source, next(numbers)))


def _case(name: str, work: str, value_size: int, codec: Codec) -> None:
    @case(
        name,
        work=work,
        unit="s for a GiB",
        peer="Apache Kafka's cleaner, warm, by its own log",
        bar=Bar(ratio=3),
        rounds_max=3,
    )
    def measured(setup: Setup) -> Workload:
        return compaction(setup, value_size, codec)


_case("compact-1k", "compact 1 GiB, 1 KiB values, 10 updates a key", 1024, Codec.NONE)
_case("compact-100b", "compact 1 GiB, 100-byte values, 10 updates a key", 100, Codec.NONE)
_case("compact-100b-lz4", "the same with lz4", 100, Codec.LZ4)


@case(
    "compact-memory",
    work="memory of compacting 1 GiB, besides the dedupe buffer of 128 MiB",
    unit="B",
    bar=Bar(at_most=64 * MIB),
    rounds_max=1,
)
def compact_memory(setup: Setup) -> Workload:
    size = setup.scaled(GIB)
    source = write_dirty(setup.folder / "dirty-source", size, 1024, Codec.NONE)
    numbers = iter(range(1 << 30))

    def ours() -> float:
        target = linked(source, setup.folder / f"ours-{next(numbers)}")
        program = (
            "import sys, pathlib, bench.cases_clean as cases\n"
            "def peak(): return int(next(line.split()[1] for line in open('/proc/self/status')"
            " if line.startswith('RssAnon'))) * 1024\n"
            "import threading, time\n"
            "before, seen, done = peak(), [0], threading.Event()\n"
            "def watch():\n"
            "    while not done.wait(0.002): seen[0] = max(seen[0], peak())\n"
            "thread = threading.Thread(target=watch); thread.start()\n"
            "cases.clean_once(pathlib.Path(sys.argv[1]), int(sys.argv[2]))\n"
            "done.set(); thread.join(); print(seen[0] - before)\n"
        )
        try:
            run = subprocess.run(
                [sys.executable, "-c", program, str(target), str(size)],
                check=True,
                capture_output=True,
                text=True,
            )
        finally:
            shutil.rmtree(target)
        return max(int(run.stdout) - DEDUPE_BYTES, 0)

    return Workload(ours=ours)


@case(
    "append-beside-cleaner",
    work="p99 of 16 KiB appends while another log is cleaned",
    unit="ms",
    peer="the same without a cleaner",
    bar=Bar(ratio=0.5),
    pinned=False,
    rounds_max=3,
)
def append_beside_cleaner(setup: Setup) -> Workload:
    size = setup.scaled(GIB)
    source = write_dirty(setup.folder / "dirty-source", size, 1024, Codec.NONE)
    numbers = iter(range(1 << 30))
    folder = setup.folder / "appended"
    folder.mkdir()
    log = PartitionLog.open(str(folder), config_of(GIB), watermark="written")
    setup.cleanup.callback(log.abandon)
    batch = bytearray()
    BatchBuilder(BatchOptions(batch_bytes=16384), out=batch).append(
        keyed_rows(15, 100, 1024, 0, text=False)
    )

    def p99(is_done: threading.Event | None) -> float:
        taken = []
        deadline = time.monotonic() + 2
        while (time.monotonic() < deadline) if is_done is None else not is_done.is_set():
            started = time.perf_counter()
            log.append(bytes(batch))
            taken.append(time.perf_counter() - started)
            time.sleep(0.0005)
        return quantiles(taken, n=100)[98] * 1e3

    def beside() -> float:
        target = linked(source, setup.folder / f"ours-{next(numbers)}")
        done = threading.Event()

        def clean() -> None:
            try:
                clean_once(target, size)
            finally:
                done.set()

        thread = threading.Thread(target=clean)
        thread.start()
        try:
            return p99(done)
        finally:
            thread.join()
            shutil.rmtree(target)

    return Workload(ours=beside, peer=lambda: p99(None))
