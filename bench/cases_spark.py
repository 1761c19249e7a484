"""The pipeline on Spark against Spark's own Kafka source and sink, and against Parquet; local[2]."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import stratalog
from bench.cases_clean import MIB, UPDATES, keyed_rows
from bench.harness import Bar, Setup, Workload, case
from bench.logs import calm
from bench.spark_world import VALUE_SIZE, World, noop, world, write_topic
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.spark.options.columns import DEFAULT_NAMES
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.pushdown.pruning import EVERYTHING
from stratalog.spark.pushdown.scan import plan_scan, scan
from stratalog.spark.read.task import read_ranges

GIB = 1 << 30
_RECORD_BYTES = 119  # of a record in the log: key, value, lengths


#: How often each side runs before it is measured: Java goes on compiling for so long (seen in times that
#: still fall from call to call, by a fifth between the second and the sixth).
_WARM_CALLS = 5
#: A compaction is many small stages, which Java compiles for longer.
_WARM_COMPACTIONS = 10


def warm(*calls: Any) -> None:
    """Let Java compile what is measured: both sides by the same number of calls."""
    for _ in range(_WARM_CALLS):
        for call in calls:
            call()


def against(here: World, ours: Any, peer: Any) -> Workload:
    warm(ours, peer)
    return Workload(ours=ours, peer=peer, amount=here.records)


@case(
    "spark-scan-kafka",
    work="4 M records of 100 bytes, all columns, to noop",
    unit="rows/s",
    peer="Spark's Kafka source from Apache Kafka",
    bar=Bar(ratio=3.5),
    pinned=False,
    rounds_max=5,
)
def scan_against_kafka(setup: Setup) -> Workload:
    here = world(setup)
    return against(here, lambda: noop(here.read(here.log)), lambda: noop(here.read_kafka()))


@case(
    "spark-scan-parquet",
    work="4 M records of 100 bytes, all columns, to noop",
    unit="rows/s",
    peer="Spark reading the same rows from zstd Parquet",
    bar=Bar(ratio=0.6),
    pinned=False,
    rounds_max=5,
)
def scan_against_parquet(setup: Setup) -> Workload:
    here = world(setup)
    path = here.parquet
    return against(
        here, lambda: noop(here.read(here.log)), lambda: noop(here.spark.read.parquet(path))
    )


def read_columns(here: World) -> None:
    noop(scan(here.spark, here.log, columns=["key", "value"]))


@case(
    "spark-columns-kafka",
    work="the same through stratalog.spark.scan, key and value",
    unit="rows/s",
    peer="Spark's Kafka source, key and value",
    bar=Bar(ratio=5),
    pinned=False,
    rounds_max=3,
)
def columns_against_kafka(setup: Setup) -> Workload:
    here = world(setup)
    peer = here.read_kafka
    return against(here, lambda: read_columns(here), lambda: noop(peer().select("key", "value")))


@case(
    "spark-columns-parquet",
    work="the same through stratalog.spark.scan, key and value",
    unit="rows/s",
    peer="the same columns from zstd Parquet",
    bar=Bar(ratio=0.8),
    pinned=False,
    rounds_max=5,
)
def columns_against_parquet(setup: Setup) -> Workload:
    here = world(setup)
    path = here.parquet
    return against(
        here,
        lambda: read_columns(here),
        lambda: noop(here.spark.read.parquet(path).select("key", "value")),
    )


def sliced(setup: Setup) -> tuple[str, int, int, int]:
    """A log of 4 GiB, and the times between which a hundredth of it lies."""
    records = setup.scaled(4 * GIB) // _RECORD_BYTES // 2 * 2
    path = str(write_topic(setup.folder / "large", "events", records, 2))
    first = 1_700_000_000_000 + records // 4
    return path, records, first, first + records // 200


def slice_of(here: World, path: str, start: int, end: int) -> Any:
    return here.read(path, startingTimestamp=start, endingTimestamp=end)


@case(
    "spark-time-slice",
    work="one hundredth of 4 GiB, by time",
    unit="s",
    peer="all of it",
    bar=Bar(ratio=20),
    pinned=False,
    rounds_max=3,
)
def time_slice(setup: Setup) -> Workload:
    here = world(setup)
    path, records, start, end = sliced(setup)
    count = slice_of(here, path, start, end).count()
    assert count == records // 100 // 2 * 2, (count, records)
    return Workload(
        ours=lambda: noop(slice_of(here, path, start, end)), peer=lambda: noop(here.read(path))
    )


@case(
    "spark-time-slice-bytes",
    work="bytes of the log that one hundredth of it by time takes, in percent",
    unit="%",
    bar=Bar(at_most=2),
    pinned=False,
    rounds_max=1,
)
def time_slice_bytes(setup: Setup) -> Workload:
    """What the plan names is what tasks read."""
    path, _, start, end = sliced(setup)
    size = sum(file.stat().st_size for file in Path(path).glob("*/*.log"))
    given = {"path": path, "startingtimestamp": str(start), "endingtimestamp": str(end)}

    def ours() -> float:
        tasks = plan_scan(ReadOptions.of(given, is_stream=False), EVERYTHING)
        return 100 * sum(each.size_bytes for task in tasks for each in task) / size

    return Workload(ours=ours)


@case(
    "spark-count",
    work="the exact count of 20 M records (2.4 GiB), by headers",
    unit="rows/s",
    peer="count() of Spark's Kafka source",
    bar=Bar(ratio=50),
    pinned=False,
    rounds_max=3,
)
def count_records(setup: Setup) -> Workload:
    from stratalog.spark.jobs.counting.count import count

    here = world(setup)
    records = setup.scaled(20_000_000) // 2 * 2
    path = str(write_topic(setup.folder / "count", "events", records, 2))

    def ours() -> None:
        rows = count(here.spark, path).collect()
        assert sum(row.records for row in rows) == records

    def peer() -> None:
        assert here.read_kafka().count() == here.records

    warm(ours, peer)
    return Workload(ours=ours, peer=peer, amount=records, peer_amount=here.records)


@case(
    "spark-write",
    work="4 M records, key and value, exactly once, synced",
    unit="rows/s",
    peer="Spark's Kafka sink, at least once, acks=1",
    bar=Bar(ratio=2.5),
    pinned=False,
    rounds_max=3,
)
def write(setup: Setup) -> Workload:
    here = world(setup)
    rows = here.spark.read.parquet(here.parquet).select("key", "value")
    number = iter(range(1 << 30))

    def ours() -> None:
        writer = rows.write.format("stratalog").option("topic", "copy").option("partitions", 2)
        writer.mode("append").save(str(setup.folder / f"written-{next(number)}"))

    def peer() -> None:
        topic = f"copy-{next(number)}"
        here.broker.create_topic(topic, 2)
        writer = rows.write.format("kafka").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", here.broker.bootstrap)
        writer.option("kafka.acks", "1").save()

    def before() -> None:
        for written in setup.folder.glob("written-*"):
            shutil.rmtree(written)
        calm(setup.folder, 3 * here.records * VALUE_SIZE)

    warm(ours, peer)
    return Workload(ours=ours, peer=peer, amount=here.records, before=before)


@case(
    "spark-micro-batch",
    work="a micro-batch of 1,000 rows, from a log to a log",
    unit="ms",
    bar=Bar(at_most=400),
    pinned=False,
    rounds_max=3,
)
def micro_batch(setup: Setup) -> Workload:
    here = world(setup)
    path = str(write_topic(setup.folder / "source", "events", 40_000, 2))
    number = iter(range(1 << 30))

    def ours() -> float:
        name = f"run-{next(number)}"
        reader = (
            here.spark.readStream.format("stratalog")
            .option("subscribePattern", ".*")
            .option("startingOffsets", "earliest")
        )
        rows = reader.option("maxOffsetsPerTrigger", 1000).load(path).select("key", "value")
        writer = rows.writeStream.format("stratalog").option("topic", "copy")
        writer = writer.option("checkpointLocation", str(setup.folder / f"{name}-checkpoint"))
        query = writer.trigger(availableNow=True).start(str(setup.folder / name))
        query.awaitTermination()
        taken = sorted(
            each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["numInputRows"]
        )
        return float(taken[len(taken) // 2])

    ours()
    return Workload(ours=ours)


@case(
    "spark-verify-cores",
    work="verify 2 GiB on two cores",
    unit="s",
    peer="the same session on one of them",
    bar=Bar(ratio=1.7),
    pinned=False,
    rounds_max=3,
)
def verify_on_cores(setup: Setup) -> Workload:
    from stratalog.spark.jobs.verifying.verify import verify

    here = world(setup)
    records = setup.scaled(2 * GIB) // _RECORD_BYTES
    path = str(write_topic(setup.folder / "verify", "events", records, 1))

    def run() -> None:
        assert sum(row.records for row in verify(here.spark, path).collect()) == records

    def on_one_core() -> None:
        with here.cores({0}):
            run()

    warm(run)
    return Workload(ours=run, peer=on_one_core)


def write_updates(folder: Path, size: int) -> str:
    """A log directory with a compacted topic of one partition: values of 1 KiB, ten updates of each key."""
    path = str(folder)
    value_size = 1024
    with stratalog.open(path) as logs:
        segment_bytes = max(size // 16, MIB)
        logs.create("t", 1, {"internal.segment.bytes": segment_bytes, "cleanup.policy": "compact"})
        log = logs.partition("t")
        count = min(size, 4 * MIB) // value_size
        keys = max(size // value_size // UPDATES, 1)
        for seed in range(max(size // (count * value_size), 1)):
            builder = BatchBuilder(BatchOptions(batch_bytes=16384), next_offset=log.log_end)
            builder.append(keyed_rows(count, keys, value_size, seed, text=False))
            log.append_as_follower(bytes(builder.out))
        log.roll()
    return path


def copy_of(path: str, copy: Path) -> str:
    """A copy whose sealed segments are second names of the same files: a rewrite changes none of them."""
    shutil.rmtree(copy, ignore_errors=True)

    def link_or_copy(source: str, target: str) -> None:
        is_data = source.endswith(".log") and Path(source).stat().st_size
        (os.link if is_data else shutil.copy2)(source, target)

    return str(shutil.copytree(path, copy, copy_function=link_or_copy))


@case(
    "spark-compact-cores",
    work="compaction of 1 GiB, 1 KiB values, 10 updates per key, on two cores",
    unit="s",
    peer="the same session on one of them",
    bar=Bar(ratio=1.6),
    pinned=False,
    rounds_max=3,
)
def compact_on_cores(setup: Setup) -> Workload:
    from stratalog.spark.jobs.rewriting.verbs import compact

    here = world(setup)
    path = write_updates(setup.folder / "updates", setup.scaled(GIB))
    copy = setup.folder / "updates-copy"

    def run() -> None:
        report = compact(here.spark, str(copy), topics="t", write=True)
        assert report.bytes_after < report.bytes_before // 5, report

    def on_one_core() -> None:
        before = os.sched_getaffinity(0)
        with here.cores({0}):  # which gives Java back the cores that this process has now
            os.sched_setaffinity(0, {0})
            try:
                run()
            finally:
                os.sched_setaffinity(0, before)

    def again() -> None:
        copy_of(path, copy)

    for _ in range(_WARM_COMPACTIONS):
        again()
        run()
    return Workload(ours=run, peer=on_one_core, before=again)


@case(
    "spark-linear",
    work="the rate at which 8 GiB are scanned",
    unit="B/s",
    peer="the rate at which 1 GiB is",
    bar=Bar(ratio=0.9),
    pinned=False,
    rounds_max=2,
)
def linear(setup: Setup) -> Workload:
    here = world(setup)
    sizes = []
    paths = []
    for factor in (8, 1):
        records = setup.scaled(factor * GIB) // _RECORD_BYTES // 2 * 2
        path = write_topic(setup.folder / f"linear-{factor}", "events", records, 2)
        paths.append(str(path))
        sizes.append(sum(file.stat().st_size for file in path.glob("*/*.log")))
    warm(lambda: noop(here.read(paths[1])))
    return Workload(
        ours=lambda: noop(here.read(paths[0])),
        peer=lambda: noop(here.read(paths[1])),
        amount=sizes[0],
        peer_amount=sizes[1],
    )


@case(
    "spark-worker-memory",
    work="the most that a Python worker held while 4 GiB were scanned",
    unit="B",
    bar=Bar(at_most=512 << 20),
    pinned=False,
    rounds_max=1,
)
def worker_memory(setup: Setup) -> Workload:
    here = world(setup)
    records = setup.scaled(4 * GIB) // _RECORD_BYTES // 2 * 2
    path = str(write_topic(setup.folder / "memory", "events", records, 2))

    options = ReadOptions.of({"path": path}, is_stream=False)
    tasks = plan_scan(options, EVERYTHING)
    frame = here.spark.range(0, len(tasks), 1, len(tasks))
    peaks = frame.mapInArrow(partial(peak_of, options, tasks), "peak bigint")
    return Workload(ours=lambda: float(max(row.peak for row in peaks.collect())))


def peak_of(options: ReadOptions, tasks: Any, numbers: Any) -> Any:
    """What a task of the source does, and then the most that its process has ever held."""
    import pyarrow as pa

    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for _ in read_ranges(options, DEFAULT_NAMES, tasks[number]):
                pass
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    yield pa.record_batch({"peak": pa.array([peak * 1024], pa.int64())})
