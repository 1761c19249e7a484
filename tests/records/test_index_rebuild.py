"""The indexes of every segment that Kafka 4.3.1 wrote come out of its log byte for byte: headers walked,
batches noted, and the time index closed with its final entry.

Left out: what cannot be the same. A log that was opened again in the middle of a segment started counting
bytes anew there (set leader-epochs). The active segment of a killed broker still has its indexes at full
length: there, what stands before the zeros is compared (without a final entry, which it had no time for),
except where the log was damaged afterwards (set torn). What Kafka's recovery made of these is compared, too.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.records import _kernel, _reference
from stratalog.records.layout import (
    OFFSET_ENTRY_SIZE,
    ROW_WIDTH,
    TIME_ENTRY_SIZE,
    Ending,
    IndexState,
    Reason,
)
from tests.judges.peers.golden import GoldenPartition, GoldenSet, golden_sets
from tests.records.rows import DEFAULT_INDEX_BYTES, new_segment

KERNELS = {"compiled": _kernel, "reference": _reference}
OPENED_AGAIN = {"v2-leader-epochs"}
KILLED = {"v2-unclean", "v2-preallocated", "v2-torn"}
DAMAGED_AFTERWARDS = {"v2-torn"}
SETS = [golden for golden in golden_sets("v2-") if golden.name not in OPENED_AGAIN]


def settings_of(golden: GoldenSet, partition: GoldenPartition) -> tuple[int, int]:
    config = golden.about["topics"].get(partition.topic, {}).get("config", {})
    interval = int(config.get("index.interval.bytes", 4096))
    return interval, int(config.get("segment.index.bytes", DEFAULT_INDEX_BYTES))


def rebuilt(
    kernel: Any, segment: Path, interval: int, index_bytes: int
) -> tuple[bytes, bytes, bytes]:
    """The offset index, the time index, and the final entry of that where it needs one.

    A few batches at a time, each time from a region of its own, as a recovery goes through a file.
    """
    data = segment.read_bytes()
    base_offset = int(segment.stem)
    state = new_segment(base_offset, interval, index_bytes)
    rows = array("q", bytes(8 * ROW_WIDTH * 5))
    offsets, times = bytearray(), bytearray()
    start = 0
    while True:
        region = data[start:]
        count, reached, ending, _, _ = kernel.walk(region, 0, len(region), memoryview(rows))
        state[IndexState.POSITION_BASE] = start
        assert kernel.note_batches(rows, count, state, offsets, times) == (count, Reason.NONE)
        if ending != Ending.FULL:
            break
        start += reached
    timestamp = state[IndexState.MAX_TIMESTAMP]
    final = b""
    if timestamp > state[IndexState.LAST_TIME]:
        offset = state[IndexState.MAX_TIMESTAMP_OFFSET] - base_offset
        final = struct.pack(">qi", timestamp, offset)
    return bytes(offsets), bytes(times), final


def segments(golden: GoldenSet) -> Iterator[tuple[GoldenPartition, Path, bool]]:
    """Every segment, and whether its indexes are still at full length."""
    for partition in golden.partitions():
        for segment in partition.segments:
            is_active = segment == partition.segments[-1]
            yield partition, segment, is_active and golden.name in KILLED
    for partition in golden.recovered():
        for segment in partition.segments:
            yield partition, segment, False


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_rebuilt_indexes_are_kafkas(kernel: Any, golden: GoldenSet) -> None:
    compared = 0
    for partition, segment, is_at_full_length in segments(golden):
        if is_at_full_length and golden.name in DAMAGED_AFTERWARDS:
            continue
        interval, index_bytes = settings_of(golden, partition)
        offsets, times, final = rebuilt(kernel, segment, interval, index_bytes)
        if is_at_full_length:
            offsets = offsets.ljust(index_bytes // OFFSET_ENTRY_SIZE * OFFSET_ENTRY_SIZE, b"\0")
            times = times.ljust(index_bytes // TIME_ENTRY_SIZE * TIME_ENTRY_SIZE, b"\0")
            final = b""
        assert segment.with_suffix(".index").read_bytes() == offsets, segment
        assert segment.with_suffix(".timeindex").read_bytes() == times + final, segment
        compared += 1
    assert compared


def test_enough_is_compared_to_mean_something() -> None:
    """Segments with several entries of both kinds, and the sets that the rule was read from."""
    names = {golden.name.removeprefix("v2-") for golden in SETS}
    assert names >= {
        "plain", "gzip", "idempotent", "headers-and-nulls", "log-append-time", "index-full",
        "java-gzip", "java-lz4", "java-snappy", "java-zstd", "timestamps", "transactions",
    }  # fmt: skip
    found = [segment for golden in SETS for _, segment, _ in segments(golden)]
    assert len(found) > 120
    entries = [each.with_suffix(".index").stat().st_size // 8 for each in found]
    assert sum(3 <= number <= 20 for number in entries) > 40
