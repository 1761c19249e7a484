"""Every bit of a time index, flipped: a read by time gives the right records, or one typed error.

An index has no CRC. An entry says that every record up to an offset has at most a timestamp: a lowered
timestamp or a raised offset makes a search begin too late. Times here rise, fall back and repeat, so that a
raised offset often names another batch of the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.sources import find_sources
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.testing import MemoryFileSystem

ROOT, TOPIC = "/logs", "orders"
#: Two segments; an index entry for every second or third batch.
CONFIG = {"internal.segment.bytes": 2200, "index.interval.bytes": 150, "segment.index.bytes": 4096}
BATCHES = 48
#: Of every four batches, the third repeats the time of the first.
STEPS = (0, 5, 0, 9)

Counted = Callable[[str, object], None]
Answer = list[int] | int | None
Reader = Callable[[MemoryFileSystem, int], Answer]


class Sound(NamedTuple):
    disk: MemoryFileSystem
    #: The timestamp of each record, by its offset.
    times: tuple[int, ...]
    indexes: tuple[str, ...]

    @property
    def boundaries(self) -> list[int]:
        return sorted({time + step for time in self.times for step in (0, 1)})

    def flips(self) -> Iterator[tuple[str, int]]:
        for path in self.indexes:
            for bit in range(8 * len(self.disk.read_bytes(path))):
                yield path, bit


@cache
def sound() -> Sound:
    disk = MemoryFileSystem(folders=[ROOT])
    now, times = disk.clock.now_ms(), []
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create(TOPIC, 1, CONFIG)
        log = logs.partition(TOPIC, 0)
        for number in range(BATCHES):
            time = now + 16 * (number // 4) + STEPS[number % 4]
            log.append(build_batch([Record(b"%d" % number, timestamp=time)] * 2))
            times += [time] * 2
    indexes = tuple(sorted(path for path in disk.paths() if path.endswith(".timeindex")))
    return Sound(disk, tuple(times), indexes)


def flipped(disk: MemoryFileSystem, path: str, bit: int) -> MemoryFileSystem:
    forked = disk.fork()
    byte = forked.read_bytes(path)[bit // 8]
    file = forked.open_writable(path)
    file.write_at(bit // 8, bytes([byte ^ 1 << bit % 8]))
    file.close()
    return forked


def read(disk: MemoryFileSystem, time: int, *, read_only: bool) -> Answer:
    logs = stratalog.open(
        ROOT, read_only=read_only, file_system=disk if read_only else disk.fork(), clock=disk.clock
    )
    try:
        return [record.offset for record in logs.read(TOPIC, start_time=time).records()]
    finally:
        logs.close()


def scan(disk: MemoryFileSystem, time: int) -> Answer:
    table = stratalog.scan(ROOT, start_time=time, columns=["offset"], file_system=disk).to_table()
    offsets: list[int] = table["offset"].to_pylist()
    return offsets


def look_up(disk: MemoryFileSystem, time: int) -> Answer:
    (source,) = find_sources(ROOT, file_system=disk).partitions
    return offset_for_time(source, time, disk)


def look_up_in_log(disk: MemoryFileSystem, time: int) -> Answer:
    disk = disk.fork()
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        found = logs.partition(TOPIC, 0).offset_for_time(time)
        return None if found is None else found.offset


READERS: dict[str, Reader] = {
    "read": partial(read, read_only=False),
    "read-only read": partial(read, read_only=True),
    "scan": scan,
    "look-up": look_up,
    "look-up in an open log": look_up_in_log,
}


def sweep(
    record_property: Counted, choose: Callable[[int, list[tuple[str, int]]], list[tuple[str, int]]]
) -> None:
    log = sound()
    asked = [(reader, time) for reader in READERS for time in log.boundaries]
    seen: Counter[str] = Counter()
    for number, (path, bit) in enumerate(log.flips()):
        damaged = flipped(log.disk, path, bit)
        for reader, time in choose(number, asked):
            later = [offset for offset, each in enumerate(log.times) if each >= time]
            wanted = (later[0] if later else None) if "look-up" in reader else later
            try:
                found = READERS[reader](damaged, time)
            except CorruptionError:
                seen["error"] += 1
                continue
            assert found == wanted, f"bit {bit} of {path}: {reader} from time {time}"
            seen["right"] += 1
    for outcome, count in seen.items():
        record_property(f"counted: flipped bits of time indexes: {outcome}", count)


def test_log_has_what_misleads() -> None:
    log = sound()
    assert len(log.indexes) == 2
    assert all(len(log.disk.read_bytes(path)) >= 6 * 12 for path in log.indexes)


def test_no_bit_of_a_time_index_loses_records(record_property: Counted) -> None:
    """Every bit is flipped; each time another reader and time are tried."""

    def some(number: int, asked: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [asked[(7 * number) % len(asked)]]

    sweep(record_property, some)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_no_bit_of_a_time_index_loses_records_at_any_time(record_property: Counted) -> None:
    """Over sixteen bits in a row, every reader is asked for every time."""
    sweep(record_property, lambda number, asked: asked[number % 16 :: 16])
