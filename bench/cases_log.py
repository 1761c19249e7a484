"""The partition log against what the system does with the same bytes, and against Kafka's own loader."""

from __future__ import annotations

import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from bench.harness import Bar, Setup, Skip, Workload, case
from bench.logs import calm, make_log, write_log
from stratalog.records import kernel
from stratalog.records.layout import BASE_TIMESTAMP_AT
from stratalog.records.restamp import assign_offsets, set_max_timestamp
from stratalog.records.scan import scan_batches
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.storage.views.time_lookup import find_time

GIB = 1 << 30
MIB = 1 << 20
_CONFIG = LogConfig.of({"max.message.bytes": 4 * MIB})


def batches(size: int, count: int) -> list[bytearray]:
    """Batches of about ``size`` bytes, each in memory of its own, as they come from a socket."""
    per_batch = max(1, size // 1043)
    data, _ = make_log(size, value_size=1024, records_per_batch=per_batch)
    first = next(iter(scan_batches(data)))
    batch = bytearray(data[: first.size_bytes])
    batch[:8] = bytes(8)
    return [bytearray(batch) for _ in range(count)]


def append_case(setup: Setup, size: int, count: int, *, with_crc: bool = False) -> Workload:
    # Some buffers in turn, as a server reuses those that it receives into.
    ring = batches(size, max(2, MIB // size))
    buffers = [ring[each % len(ring)] for each in range(count)]
    number = iter(range(1 << 30))
    no_offset = bytes(8)

    def ours() -> float:
        folder = setup.folder / f"append-{next(number)}"
        folder.mkdir()
        log = PartitionLog.open(str(folder), _CONFIG)
        started = time.perf_counter()
        for each in buffers:
            each[:8] = no_offset
            log.append(each)
        taken = time.perf_counter() - started
        log.abandon()
        shutil.rmtree(folder)
        return taken / count * 1e6

    def plain() -> float:
        path = setup.folder / "plain"
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        started = time.perf_counter()
        for each in buffers:
            if with_crc:
                kernel.crc32c(each)
            os.write(fd, each)
        taken = time.perf_counter() - started
        os.close(fd)
        path.unlink()
        return taken / count * 1e6

    return Workload(ours=ours, peer=plain, before=lambda: calm(setup.folder, 2 * size * count))


@case(
    "append-16k",
    work="append a 16 KiB batch, checked record by record",
    unit="µs",
    peer="write() of the same buffers",
    bar=Bar(ratio=0.4),
)
def append_16k(setup: Setup) -> Workload:
    return append_case(setup, 16 << 10, setup.scaled(4096))


@case(
    "append-1m",
    work="append a 1 MiB batch, checked record by record",
    unit="µs",
    peer="write() of the same buffers",
    bar=Bar(ratio=0.85),
)
def append_1m(setup: Setup) -> Workload:
    return append_case(setup, MIB, setup.scaled(128))


@case(
    "append-1m-crc",
    work="append a 1 MiB batch, checked record by record",
    unit="µs",
    peer="CRC32C and write() of the same buffers",
)
def append_1m_crc(setup: Setup) -> Workload:
    return append_case(setup, MIB, setup.scaled(128), with_crc=True)


def sync_case(
    setup: Setup, make: Callable[[PartitionLog, bytes, int, int], Callable[[], None]]
) -> Workload:
    """64 callers with an append each, again and again, against one fdatasync for each append."""
    callers, each_one = 64, setup.scaled(32)
    batch = bytes(batches(1024, 1)[0])
    folder = setup.folder / "sync"
    folder.mkdir()
    log = PartitionLog.open(str(folder), _CONFIG)
    setup.cleanup.callback(log.close)
    fd = os.open(setup.folder / "plain", os.O_CREAT | os.O_RDWR)
    setup.cleanup.callback(os.close, fd)

    def plain() -> None:
        for _ in range(callers * each_one):
            os.write(fd, batch)
            os.fdatasync(fd)

    return Workload(ours=make(log, batch, callers, each_one), peer=plain)


@case(
    "append-sync-64",
    work="the appends of 64 callers, taken together: one write and one sync serve them all",
    unit="s",
    peer="one fdatasync for each",
    bar=Bar(ratio=20),
)
def append_sync_each(setup: Setup) -> Workload:
    """As a loop does it that serves all who are ready, and answers them after one sync."""

    def make(log: PartitionLog, batch: bytes, callers: int, each_one: int) -> Callable[[], None]:
        def ours() -> None:
            for _ in range(each_one):
                answers = log.append_each([batch] * callers, sync=True)
                assert all(isinstance(answer, AppendResult) for answer in answers)

        return ours

    return sync_case(setup, make)


@case(
    "append-sync-64-single",
    work="64 callers of one loop append, one after the other, and one sync serves them all",
    unit="s",
    peer="one fdatasync for each",
)
def append_sync_loop(setup: Setup) -> Workload:
    """The same without taking them together."""

    def make(log: PartitionLog, batch: bytes, callers: int, each_one: int) -> Callable[[], None]:
        def ours() -> None:
            for _ in range(each_one):
                last = [log.append(batch) for _ in range(callers)][-1]
                assert log.sync() >= last.next_offset

        return ours

    return sync_case(setup, make)


@case(
    "append-sync-64-callbacks",
    work="64 callers on one thread append and are told when it is on the disk",
    unit="s",
    peer="one fdatasync for each",
    pinned=False,
)
def append_sync_callbacks(setup: Setup) -> Workload:
    """As a server does it: each caller has one append on its way, and the next one follows the answer."""

    def make(log: PartitionLog, batch: bytes, callers: int, each_one: int) -> Callable[[], None]:
        def ours() -> None:
            answered: SimpleQueue[int] = SimpleQueue()
            left = [each_one] * callers

            def answer(caller: int, failure: object) -> None:
                assert failure is None, failure
                answered.put(caller)

            for caller in range(callers):
                answered.put(caller)
            for _ in range(callers * (each_one + 1)):
                caller = answered.get()
                if left[caller]:
                    left[caller] -= 1
                    result = log.append(batch)
                    log.when_synced(result.next_offset, partial(answer, caller))

        return ours

    return sync_case(setup, make)


@case(
    "append-sync-64-threads",
    work="64 threads append and wait for the disk",
    unit="s",
    peer="one fdatasync for each",
    pinned=False,
)
def append_sync_threads(setup: Setup) -> Workload:
    def make(log: PartitionLog, batch: bytes, callers: int, each_one: int) -> Callable[[], None]:
        def caller() -> None:
            for _ in range(each_one):
                log.append(batch, sync=True)

        def ours() -> None:
            threads = [threading.Thread(target=caller) for _ in range(callers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return ours

    return sync_case(setup, make)


def filled(
    setup: Setup, size: int, name: str = "filled", *, segment_bytes: int = GIB
) -> PartitionLog:
    """A log of 16 KiB batches, closed and opened again, in the page cache."""
    folder = setup.folder / name
    folder.mkdir()
    config = LogConfig.of({"internal.segment.bytes": segment_bytes, "max.message.bytes": 4 * MIB})
    log = PartitionLog.open(str(folder), config, watermark="written")
    data, _ = make_log(4 * MIB, value_size=1024, records_per_batch=15)
    ends = [each.end_position for each in scan_batches(data)]
    data = data[: max(end for end in ends if end <= max(segment_bytes // 4, ends[0]))]
    timestamp = 0
    while log.log_end == 0 or log.size_bytes + len(data) <= size:
        piece = bytearray(data)
        for header in scan_batches(data):
            # Times that rise over the whole log, so that every look-up has one answer.
            timestamp += 100
            at = header.position + BASE_TIMESTAMP_AT
            piece[at : at + 8] = timestamp.to_bytes(8, "big")
            set_max_timestamp(piece, header.position, timestamp + 14)
        assign_offsets(piece, next_offset=log.log_end, leader_epoch=0)
        log.append_as_follower(piece)
    log.close()
    reopened = PartitionLog.open(
        str(folder), config, is_clean=True, recovery_point=log.log_end, watermark="written"
    )
    setup.cleanup.callback(reopened.abandon)
    return reopened


@case(
    "read-1m",
    work="read 1 MiB regions one after the other",
    unit="B/s",
    peer="pread of the same regions",
    bar=Bar(ratio=0.9),
)
def read_1m(setup: Setup) -> Workload:
    log = filled(setup, setup.scaled(256 * MIB))
    regions = []
    offset = 0
    while offset < log.log_end:
        read = log.read(offset, MIB)
        assert read.region is not None
        regions.append((offset, read.region.position, read.region.size_bytes))
        headers = list(scan_batches(read.region.read()))
        offset = headers[-1].next_offset
    starts = [each[0] for each in regions]
    fd = os.open(log.segments[0].log.path, os.O_RDONLY)
    setup.cleanup.callback(os.close, fd)

    def ours() -> None:
        for each in starts:
            region = log.read(each, MIB).region
            assert region is not None
            region.read()

    def plain() -> None:
        for _, position, size in regions:
            os.pread(fd, size, position)

    return Workload(ours=ours, peer=plain, amount=sum(each[2] for each in regions))


def lookup_case(
    setup: Setup, size: int, look_up: Callable[[PartitionLog, int], object]
) -> Workload:
    log = filled(setup, size)
    chosen = random.Random(7)
    targets = [chosen.randrange(log.log_end) for _ in range(1000)]
    places = [chosen.randrange(log.size_bytes - 4096) for _ in range(1000)]
    fd = os.open(log.segments[0].log.path, os.O_RDONLY)
    setup.cleanup.callback(os.close, fd)

    def ours() -> None:
        for target in targets:
            look_up(log, target)

    def plain() -> None:
        for place in places:
            os.pread(fd, 4096, place)

    return Workload(ours=ours, peer=plain, amount=1000)


def by_offset(log: PartitionLog, target: int) -> object:
    return log.view.find(target)


def by_time(log: PartitionLog, target: int) -> object:
    return find_time(log.view, target // 15 * 100)


for _size, _text in ((64 * MIB, "64 MiB"), (GIB, "1 GiB")):
    for _kind, _call in (("offset", by_offset), ("time", by_time)):

        @case(
            f"lookup-{_kind}-{_text.replace(' ', '').lower()}",
            work=f"find a record by {_kind} in {_text}, at random",
            unit="lookups/s",
            peer="pread of one index interval",
            bar=Bar(ratio=0.1),
        )
        def lookup(
            setup: Setup,
            size: int = _size,
            call: Callable[[PartitionLog, int], object] = _call,
        ) -> Workload:
            return lookup_case(setup, setup.scaled(size), call)


@case(
    "recovery-scan",
    work="recover 1 GiB: CRCs, order, indexes, producers",
    unit="B/s",
    peer="CRC32C alone over the same bytes, in memory already",
    bar=Bar(ratio=0.6),
)
def recovery_scan(setup: Setup) -> Workload:
    path, _ = write_log(setup.folder, setup.scaled(GIB), value_size=1024, records_per_batch=15)
    data = path.read_bytes()
    log = PartitionLog.open(str(path.parent), _CONFIG)
    log.close()  # its files are there, and on the disk

    def ours() -> None:
        PartitionLog.open(str(path.parent), _CONFIG).abandon()

    return Workload(ours=ours, peer=lambda: kernel.crc32c(data), amount=len(data))


@case(
    "recovery-kafka",
    work="recover 1 GiB in four segments",
    unit="ms",
    peer="Kafka's own loader on the same directory",
    bar=Bar(ratio=2),
    pinned=False,
    rounds_max=3,
)
def recovery_kafka(setup: Setup) -> Workload:
    from tests.judges.kafka import oracle

    try:
        oracle.fetch()
    except oracle.OracleUnavailable as reason:
        raise Skip(str(reason)) from reason
    size = setup.scaled(GIB)
    log = filled(setup, size, "orders-0", segment_bytes=size // 4)
    folder = log.folder
    log.close()
    config = LogConfig.of({"internal.segment.bytes": size // 4})
    number = iter(range(1 << 30))

    def ours() -> float:
        started = time.perf_counter()
        PartitionLog.open(folder, config).abandon()
        return (time.perf_counter() - started) * 1e3

    def theirs() -> float:
        place = setup.folder / f"kafka-{next(number)}"
        broker = oracle.Kafka(place, profile="server", heap="1g")
        result = broker.adopt(Path(folder), mode="recover")
        shutil.rmtree(place)
        found = re.findall(r"orders-0.*?in (\d+)\s?ms", "\n".join(result.load))
        if not found:
            raise Skip("Kafka's log does not say how long it took")
        return float(max(map(int, found)))

    return Workload(ours=ours, peer=theirs)


def clean_partition(setup: Setup, segment_bytes: int) -> Callable[[], float]:
    log = filled(setup, 100 * segment_bytes, f"clean-{segment_bytes}", segment_bytes=segment_bytes)
    log.close()
    assert len(log.segments) >= 90, len(log.segments)

    def call() -> float:
        started = time.perf_counter()
        opened = PartitionLog.open(
            log.folder, log.config, is_clean=True, recovery_point=log.log_end
        )
        taken = time.perf_counter() - started
        opened.close()  # in order, so that the next one finds it so
        return taken * 1e3

    return call


@case(
    "open-clean-100",
    work="open a clean partition of 100 segments of 4 MiB",
    unit="ms",
    peer="the same with segments of 128 KiB",
    bar=Bar(at_most=5),
)
def open_clean(setup: Setup) -> Workload:
    return Workload(
        ours=clean_partition(setup, setup.scaled(4 * MIB)),
        peer=clean_partition(setup, 128 << 10),
    )
