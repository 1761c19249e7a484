"""Fuzz target: recovery of a folder with one segment of any bytes.

The first byte chooses the segment's first offset, the second whether recovery cuts where it may not; the rest
is the data file. Whatever it is, the log opens or refuses with a typed error. Where it opens, every byte is
accounted for: it is in a segment, or was cut and told. What was cut without being kept holds nothing that
matches its CRC, searched for here by another, slower way. Where it refuses, the file is as it was. Opened
again it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz import seeds as made
from fuzz.twins import Selectors
from stratalog.errors import DamagedLogError
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import MemoryFileSystem

TARGET_NAME = "recovery"
SELECTORS = 2
FOLDER = "/t-0"
LEAST = {0: 26, 1: 34, 2: 61}
BASES = (0, 5, 1 << 31, 1 << 48)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    base = BASES[selectors.byte() % len(BASES)]
    on_damage = ("refuse", "cut")[selectors.byte() % 2]
    segment = bytes(selectors.rest)
    disk = MemoryFileSystem(folders=[FOLDER])
    path = f"{FOLDER}/{base:020d}.log"
    file = disk.open_writable(path, create=True)
    file.write_at(0, segment)
    file.close()
    disk.sync_all()
    try:
        log = PartitionLog.open(FOLDER, file_system=disk, clock=disk.clock, on_damage=on_damage)
    except DamagedLogError as error:
        assert on_damage == "refuse"
        assert disk.read_bytes(path) == segment
        return error.reason
    report, end = log.report, log.log_end
    kept = b"".join(
        disk.read_bytes(f"{FOLDER}/{each.base_offset:020d}.log")[: each.size_bytes]
        for each in log.segments
    )
    assert segment.startswith(kept)
    assert len(kept) + report.cut_bytes == len(segment)
    for cut in report.cuts:
        gone = segment[cut.position : cut.position + cut.size_bytes]
        if cut.kept_as is not None:
            assert disk.read_bytes(cut.kept_as) == gone
        else:
            assert not any(sound(gone, base)), "what was whole was cut"
    log.close()
    again = PartitionLog.open(FOLDER, file_system=disk, clock=disk.clock, recovery_point=end)
    assert again.report.cuts == []
    assert again.log_end == end
    again.close()
    return len(report.cuts), len(report.split_segments), end


def sound(data: bytes, base: int) -> Iterator[bool]:
    """Whether a batch or a message of this segment, or the first whatever it says, begins at each place."""
    for at in range(len(data) - 25):
        offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        batch, magic = data[at : at + size], data[at + 16]
        if len(batch) != size or size < LEAST.get(magic, 26):
            continue
        if at and not (offset >= base and offset >> 48 == base >> 48 and is_likely(batch)):
            continue
        if magic == 2:
            yield kernel.crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")
        elif magic < 2:
            yield kernel.crc32(batch[16:]) == int.from_bytes(batch[12:16], "big")


def is_likely(batch: bytes) -> bool:
    """Whether the fields are such as somebody writes: of a mutation whose CRC was mended they need not be."""
    magic = batch[16]
    if magic == 2:
        return batch[21] == 0 and batch[22] < 128 and batch[23] < 128
    key_at = 18 if magic == 0 else 26
    key_size = int.from_bytes(batch[key_at : key_at + 4], "big", signed=True)
    return batch[17] < 16 and -1 <= key_size < len(batch)


def repair(data: bytes) -> bytes:
    return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])


def seeds() -> Iterator[bytes]:
    for number, base in enumerate(BASES):
        head = bytes([number, 0])
        batches = [
            build_batch([Record(b"v" * at)], BatchOptions(), base_offset=base + at)
            for at in range(4)
        ]
        yield head + b"".join(batches)
        yield head + b"".join(batches)[:-9]
        yield head + batches[0] + bytes(600) + batches[2]
        yield head + batches[0] + b"nonsense" * 9 + batches[3]
        for magic in (0, 1):
            yield head + b"".join(
                build_messages(
                    [Record(b"v", b"k")], MessageOptions(magic=magic), base_offset=base + at
                )
                for at in range(4)
            )
        wide = [0, 1, (1 << 31) + 1, (1 << 31) + 2]
        yield head + b"".join(
            build_batch([Record(b"w")], BatchOptions(), base_offset=base + at) for at in wide
        )
    for data in made.batches():
        if len(data) < 2000:
            yield bytes(2) + data
