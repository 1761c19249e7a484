"""Reads and writes on real clusters whose executors and workers are killed in the middle of a job.

Two kinds: executors as processes of their own under one driver (``local-cluster``), and a standalone
master with two workers on two hosts. Whatever dies, each row is there once, and nothing else is.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stratalog
from tests.judges.interop.spark_processes import (
    StandaloneCluster,
    executor_of,
    executors_below,
    is_alive,
    own_session,
    wait_for,
)

pytest.importorskip("pyspark")
pytestmark = pytest.mark.interop

ROWS = 120_000
PARTITIONS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def source(folder: Path) -> str:
    """Some 20 MB, so that a task's rows do not all fit into what lies between it and the next one."""
    path = str(folder / "source")
    with stratalog.open(path) as logs:
        logs.create("orders", PARTITIONS)
        for number in range(PARTITIONS):
            for start in range(number, ROWS, PARTITIONS * 5000):
                last = min(ROWS, start + PARTITIONS * 5000)
                rows = [(str(n), f"{n:0150}") for n in range(start, last, PARTITIONS)]
                logs.append("orders", rows, partition=number)
    return path


@pytest.fixture(scope="module")
def standalone(folder: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(folder) as cluster:
        yield cluster


@pytest.fixture(scope="class", params=["local-cluster", "standalone"])
def spark(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    """A session on each kind of cluster, one after the other."""
    master = "local-cluster[2,1,1024]"
    if request.param == "standalone":
        master = request.getfixturevalue("standalone").url
    with own_session(folder, master) as started:
        yield started


def rows_of(spark: Any, source: str) -> Any:
    return spark.read.format("stratalog").option("splitBytes", "6m").load(source)


def pausing(marks: Path) -> Any:
    """Lets rows through; the first try of the first partition stops in the middle and says who it is."""

    def through(batches: Any) -> Any:
        import os
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId()}-{context.attemptNumber()}"
        for number, batch in enumerate(batches):
            for start in range(0, batch.num_rows, 1000):
                yield batch.slice(start, 1000)  # in pieces that are handed on at once
                if number == 0 and start == 8000 and name == "0-0":
                    (marks / "writing").write_text(str(os.getpid()))
                    (marks / "writing").rename(marks / name)
                    while not (marks / "go").exists():
                        time.sleep(0.02)

    return through


@contextmanager
def killed_in_the_middle(marks: Path, kill: Callable[[int], None]) -> Iterator[None]:
    """While the block runs its job: wait for the task that stops, kill what it stands on, let it go on."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            mark = marks / "0-0"
            wait_for("the task", mark.exists)
            kill(int(mark.read_text()))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            (marks / "go").touch()

    marks.mkdir()
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        (marks / "go").touch()
        thread.join()
    if failures:
        raise failures[0]


def kill_executor(worker: int) -> None:
    executor = executor_of(worker)
    os.kill(executor, signal.SIGKILL)
    wait_for("its end", lambda: not is_alive(executor))


def counted(frame: Any) -> list[tuple[int, ...]]:
    """Of each partition: how many offsets, how many different ones, the first, the last."""
    from pyspark.sql import functions as f

    figures = (f.count("offset"), f.count_distinct("offset"), f.min("offset"), f.max("offset"))
    return sorted(tuple(row) for row in frame.groupBy("partition").agg(*figures).collect())


EACH_ONCE = [
    (number, ROWS // PARTITIONS, ROWS // PARTITIONS, 0, ROWS // PARTITIONS - 1)
    for number in range(PARTITIONS)
]


def write(frame: Any, target: Path, **options: object) -> None:
    writer = frame.selectExpr("key", "value").write.format("stratalog").mode("append")
    for name, value in {"topic": "copy", "partitions": 3, "stageBytes": "16k", **options}.items():
        writer = writer.option(name, value)
    writer.save(str(target))


def pieces(target: Path) -> list[Path]:
    return list(target.glob("stratalog-piece*"))


def check_copy(target: Path, count: int = ROWS) -> None:
    with stratalog.open(str(target), read_only=True) as logs:
        found = [int(record.key or b"-1") for record in logs.read("copy").records()]
    assert len(found) == count
    assert sorted(found) == list(range(count))
    assert pieces(target) == []


# --- both kinds of cluster -------------------------------------------------------------------------


class TestEachCluster:
    """A session for each kind, and nothing of it left when the next one begins."""

    def test_executor_killed_in_the_middle_of_a_read(
        self, spark: Any, source: str, tmp_path: Path
    ) -> None:
        frame = rows_of(spark, source).mapInArrow(
            pausing(tmp_path / "marks"), rows_of(spark, source).schema
        )
        with killed_in_the_middle(tmp_path / "marks", kill_executor):
            assert counted(frame) == EACH_ONCE

    def test_executor_killed_in_the_middle_of_a_write(
        self, spark: Any, source: str, tmp_path: Path
    ) -> None:
        target = tmp_path / "target"
        left: list[Path] = []

        def kill(worker: int) -> None:
            wait_for("a piece on the disk", lambda: any(p.stat().st_size for p in pieces(target)))
            kill_executor(worker)
            left.extend(pieces(target))

        rows = rows_of(spark, source)
        frame = rows.mapInArrow(pausing(tmp_path / "marks"), rows.schema)
        with killed_in_the_middle(tmp_path / "marks", kill):
            write(frame, target)
        assert left, "the dead task had written something"
        check_copy(target)

    def test_executor_killed_under_a_stream(self, spark: Any, source: str, tmp_path: Path) -> None:
        """Tasks on other machines know their query and batch, and so do their second tries."""
        marks, target = tmp_path / "marks", tmp_path / "target"
        reader = (
            spark.readStream.format("stratalog")
            .option("subscribePattern", ".*")
            .option("startingOffsets", "earliest")
        )
        rows = reader.option("maxOffsetsPerTrigger", ROWS // 2).load(source)
        frame = rows.mapInArrow(pausing(marks), rows.schema).select("key", "value")
        writer = frame.writeStream.format("stratalog").option("topic", "copy")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        with killed_in_the_middle(marks, kill_executor):
            query = writer.trigger(availableNow=True).start(str(target))
            assert query.awaitTermination(300)
        assert query.lastProgress["batchId"] > 0
        check_copy(target)

    def test_relative_paths_are_the_drivers(self, spark: Any, source: str, tmp_path: Path) -> None:
        """An executor works in a folder of its own: what a path means is said by the driver."""
        rows = rows_of(spark, os.path.relpath(source)).limit(1000)
        target = tmp_path / "target"
        write(rows, Path(os.path.relpath(target)))
        with stratalog.open(str(target), read_only=True) as logs:
            assert len(list(logs.read("copy").records())) == 1000

    def test_task_that_fails_is_tried_again(self, spark: Any, source: str, tmp_path: Path) -> None:
        def fail_once(batches: Any) -> Any:
            from pyspark import TaskContext

            for number, batch in enumerate(batches):
                yield batch
                context = TaskContext.get()
                assert context is not None
                if number == 1 and context.attemptNumber() < 2:
                    raise RuntimeError("planned")

        rows = rows_of(spark, source)
        write(rows.mapInArrow(fail_once, rows.schema), tmp_path / "target")
        check_copy(tmp_path / "target")


# --- two hosts -------------------------------------------------------------------------------------


def test_slow_task_is_run_on_the_other_host_too(
    standalone: StandaloneCluster, folder: Path, source: str, tmp_path: Path
) -> None:
    """Speculation: the first try of one task waits until the second has begun, and both of them write."""
    marks, target = tmp_path / "marks", tmp_path / "target"
    marks.mkdir()

    def slow(batches: Any) -> Any:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId()}-{context.attemptNumber()}"
        (marks / name).touch()
        for number, batch in enumerate(batches):
            yield batch
            while number == 0 and name == "0-0" and not (marks / "0-1").exists():
                time.sleep(0.02)

    configs = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    with own_session(folder, standalone.url, configs) as spark:
        wait_for("both hosts", lambda: all(standalone.executors().values()))
        rows = rows_of(spark, source)
        write(rows.mapInArrow(slow, rows.schema), target)
        assert (marks / "0-1").exists(), "the second try"
        # The try that lost may still have been writing when the commit swept: a next commit does it.
        count = ROWS
        while pieces(target):
            assert count < ROWS + 50, pieces(target)
            write(spark.sql(f"SELECT '{count}' AS key, 'more' AS value"), target)
            count += 1
    check_copy(target, count)


def test_worker_killed_in_the_middle_of_a_write(
    standalone: StandaloneCluster, folder: Path, source: str, tmp_path: Path
) -> None:
    """Last: this host does not come back. The other one does the rest of the work."""
    marks, target = tmp_path / "marks", tmp_path / "target"
    with own_session(folder, standalone.url) as spark:
        wait_for("both hosts", lambda: all(standalone.executors().values()))

        def kill(worker: int) -> None:
            executor = executor_of(worker)
            (host,) = [h for h, found in standalone.executors().items() if executor in found]
            standalone.kill_worker(host)
            wait_for("the end of its executor", lambda: not is_alive(executor))

        rows = rows_of(spark, source)
        with killed_in_the_middle(marks, kill):
            write(rows.mapInArrow(pausing(marks), rows.schema), target)
        assert counted(rows_of(spark, source)) == EACH_ONCE
        wait_for("the master to notice", lambda: standalone.alive_workers() == 1)
    check_copy(target)


def test_nothing_is_left_running() -> None:
    """What the sessions above had started ended with them."""
    wait_for("the end of all executors", lambda: executors_below(os.getpid()) == [], 30)
