"""A stream of Spark reads a compacted topic that is appended to and cleaned all the time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stratalog
from tests.rewrite.test_beside_a_cleaner import (
    CONFIGS,
    TOPIC,
    Truth,
    Writer,
    check_read,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]


def test_a_stream_sees_every_key_to_its_last_update(spark: Any, tmp_path: Path) -> None:
    """Micro-batches are small, so that most of their ranges are compacted while they are planned and read.
    What is superseded before the stream comes to it may be gone; nothing else, and nothing comes twice."""
    seen: list[tuple[int, bytes, bytes]] = []
    has_begun, has_end = threading.Event(), threading.Event()

    def take(frame: Any, _: int) -> None:
        rows = sorted(frame.select("offset", "key", "value").collect())
        seen.extend((row.offset, bytes(row.key), bytes(row.value)) for row in rows)
        for name, event in ((b"the begin", has_begun), (b"the end", has_end)):
            if any(key == name for _, key, _ in seen):
                event.set()

    path = tmp_path / "logs"
    with stratalog.open(path, sync=False) as logs:
        logs.create(TOPIC, 1, CONFIGS)
        truth = Truth()
        writer = Writer(logs, truth)
        query = (
            spark.readStream.format("stratalog")
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("isolationLevel", "read_committed")
            .option("maxOffsetsPerTrigger", 97)
            .load(str(path))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )

        def wait_for(event: threading.Event) -> None:
            while not event.wait(1):
                assert query.exception() is None
                assert query.isActive

        try:
            logs.append(TOPIC, [(b"the begin", b"0")], partition=0)
            wait_for(has_begun)
            with ThreadPoolExecutor(2) as threads:
                cleaning = threads.submit(writer.loop, lambda: logs.clean(TOPIC, roll=True))
                threads.submit(writer.write).result()
                assert cleaning.result() > 1
            logs.append(TOPIC, [(b"the end", b"0")], partition=0)
            wait_for(has_end)
        finally:
            query.stop()
    check_read(seen[:-1], truth, truth.newest())
    assert len(seen) > len(truth.newest()), "some were read before they were superseded"
