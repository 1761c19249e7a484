"""Logs of every format, ways to damage them, and what must be true of every salvage.

A log is made of batches whose bytes and offsets are known. After damage, a batch is intact if its bytes are
still in one of the files, wherever that is. Of 0.7, whose offsets are positions, it must be where it was.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import stratalog
from stratalog.errors import StorageError
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.verify import Finding
from stratalog.inspect.verify.directory import LocalCheck, verify_sources
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import INT32_MAX, MAGIC_AT, ROW_WIDTH, Check, Codec, Row
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.scan import scan_batches
from stratalog.records.v07 import build_entry
from stratalog.rewrite.salvage.directory import write_directory
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan, plan_salvage
from stratalog.storage.epochs.leader_epochs import LeaderEpochs
from stratalog.storage.files.filesystem import OsFileSystem, OsWritableFile, WritableFile
from stratalog.storage.names import DAMAGED_DIR, LEADER_EPOCH_CHECKPOINT, log_file_name


class Unsynced(OsFileSystem):
    """The machine's own files, without fsyncs: what takes most of the time of a small salvage."""

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        class File(OsWritableFile):
            def sync(self) -> None:
                """Leave it to the system."""

        return File(path, create=create)

    def sync_dir(self, path: str) -> None:
        """Leave it to the system."""


FILES = Unsynced()
TOPIC = "orders"
PARTITION = f"{TOPIC}-0"
NOW = 1_700_000_000_000
BLOCK = 64


@dataclass(frozen=True)
class Batch:
    data: bytes
    first: int
    next: int


@dataclass
class World:
    """A log as it was, and the folder that holds it."""

    folder: Path
    batches: list[Batch]
    files: dict[str, bytes]
    is_v07: bool = False
    epochs: bytes = b""
    damage: list[str] = field(default_factory=list)

    @property
    def partition(self) -> Path:
        return self.folder / PARTITION

    def store(self) -> None:
        self.partition.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (self.partition / name).write_bytes(data)
        if self.epochs:
            (self.partition / LEADER_EPOCH_CHECKPOINT).write_bytes(self.epochs)


# --- logs ----------------------------------------------------------------------------------------


def some_records(rng: random.Random, count: int, at: int) -> list[Record]:
    return [
        Record(
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(80)), b"same words " * 9)),
            key=rng.choice((None, b"key %d" % rng.randrange(9))),
            timestamp=NOW + 10 * at + number,
        )
        for number in range(count)
    ]


def v2_batches(rng: random.Random, codec: Codec | None) -> Iterator[Batch]:
    offset = 0
    for at in range(rng.randrange(12, 30)):
        rows = some_records(rng, rng.randrange(1, 9), at)
        chosen = rng.choice(list(Codec)) if codec is None else codec
        options = BatchOptions(codec=chosen, leader_epoch=at // 8)
        yield Batch(build_batch(rows, options, base_offset=offset), offset, offset + len(rows))
        offset += len(rows)


def transactional_batches(rng: random.Random) -> Iterator[Batch]:
    offset = 0
    sequences = dict.fromkeys((7, 8), 0)
    is_open = dict.fromkeys(sequences, False)
    for at in range(24):
        producer = rng.choice(list(sequences))
        if is_open[producer] and rng.random() < 0.4:
            data = build_marker(
                rng.choice((ControlType.ABORT, ControlType.COMMIT)),
                offset=offset, timestamp=NOW + at, producer_id=producer, producer_epoch=0,
                coordinator_epoch=0, leader_epoch=0,
            )  # fmt: skip
            yield Batch(data, offset, offset + 1)
            offset += 1
            is_open[producer] = False
            continue
        rows = some_records(rng, rng.randrange(1, 5), at)
        options = BatchOptions(
            producer_id=producer, producer_epoch=0, base_sequence=sequences[producer],
            is_transactional=True, leader_epoch=0,
        )  # fmt: skip
        yield Batch(build_batch(rows, options, base_offset=offset), offset, offset + len(rows))
        sequences[producer] += len(rows)
        offset += len(rows)
        is_open[producer] = True


def compacted_batches(rng: random.Random) -> Iterator[Batch]:
    """Gaps between batches and inside of them, and batches that compaction emptied."""
    offset = 0
    for at in range(rng.randrange(12, 30)):
        rows = some_records(rng, rng.randrange(1, 6), at)
        offset += rng.choice((0, 0, 1, 5, 33))
        kept = []
        last = offset
        for row in rows:
            kept.append(Record(row.value, row.key, row.timestamp, offset=last))
            last += rng.choice((1, 1, 3))
        data = build_batch(kept, BatchOptions(leader_epoch=0))
        (header,) = scan_batches(data)
        if rng.random() < 0.1:
            data = empty_batch(header)
        yield Batch(data, offset, header.last_offset + 1)
        offset = header.last_offset + 1


def legacy_batches(rng: random.Random, magic: int, codec: Codec | None) -> Iterator[Batch]:
    offset = 0
    for at in range(rng.randrange(12, 30)):
        chosen = rng.choice(LEGACY_CODECS) if codec is None else codec
        count = 1 if chosen is Codec.NONE else rng.randrange(1, 9)
        rows = some_records(rng, count, at)
        options = MessageOptions(magic=magic, codec=chosen)
        yield Batch(build_messages(rows, options, base_offset=offset), offset, offset + count)
        offset += count


def mixed_batches(rng: random.Random) -> Iterator[Batch]:
    offset = 0
    for magic in (0, 1, 2):
        made = v2_batches(rng, None) if magic == 2 else legacy_batches(rng, magic, None)
        for each in list(made)[:9]:
            data = bytearray(each.data)
            kernel.restamp(data, 0, len(data), offset, 0) if magic == 2 else None
            count = each.next - each.first
            if magic < 2:
                rows = [
                    Record(row.value, row.key, row.timestamp) for row in decode_records(each.data)
                ]
                attributes = next(iter(scan_batches(each.data))).codec
                options = MessageOptions(magic=magic, codec=attributes)
                data = bytearray(build_messages(rows, options, base_offset=offset))
            yield Batch(bytes(data), offset, offset + count)
            offset += count


def v07_batches(rng: random.Random) -> Iterator[Batch]:
    position = 0
    for _ in range(rng.randrange(12, 30)):
        codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY))
        payload = rng.choice((rng.randbytes(rng.randrange(1, 90)), b"words " * 12))
        data = build_entry(payload, magic=rng.choice((0, 1)))
        if codec:
            from stratalog.records.v07 import build_entries

            data = build_entries([payload, b"second"], codec=codec)
        yield Batch(data, position, position + len(data))
        position += len(data)


Maker = Callable[[random.Random], Iterator[Batch]]
LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
KINDS: dict[str, Maker] = {
    "v2-mixed": partial(v2_batches, codec=None),
    "v2-transactions": transactional_batches,
    "v2-compacted": compacted_batches,
    "v1-mixed": partial(legacy_batches, magic=1, codec=None),
    "mixed": mixed_batches,
    "v07": v07_batches,
}
KINDS |= {f"v2-{codec.text}": partial(v2_batches, codec=codec) for codec in Codec}
KINDS |= {
    f"v{magic}-{codec.text}": partial(legacy_batches, magic=magic, codec=codec)
    for magic in (0, 1)
    for codec in LEGACY_CODECS
}


def make_world(folder: Path, kind: str, rng: random.Random) -> World:
    batches = list(KINDS[kind](rng))
    is_v07 = kind == "v07"
    files: dict[str, bytes] = {}
    at = 0
    while at < len(batches):
        count = rng.randrange(4, len(batches) + 1)
        part = batches[at : at + count]
        name = log_file_name(part[0].first, is_v07=is_v07)
        files[name] = b"".join(each.data for each in part)
        at += count
    return World(folder, batches, files, is_v07, _epochs(batches) if kind.startswith("v2") else b"")


def _epochs(batches: Sequence[Batch]) -> bytes:
    entries = LeaderEpochs()
    for each in batches:
        (header,) = scan_batches(each.data)
        entries.assign(header.leader_epoch, each.first)
    return entries.encode()


# --- damage --------------------------------------------------------------------------------------


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randrange(2, 9)):
        flip_bit(data, rng)


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def zero_block(data: bytearray, rng: random.Random) -> None:
    start, size = rng.randrange(len(data)), rng.choice((1, 8, BLOCK, 5 * BLOCK, 20 * BLOCK))
    size = min(size, len(data) - start)
    data[start : start + size] = bytes(size)


def overwrite_block(data: bytearray, rng: random.Random) -> None:
    start, size = rng.randrange(len(data)), rng.choice((1, 8, BLOCK, 5 * BLOCK))
    size = min(size, len(data) - start)
    data[start : start + size] = rng.randbytes(size)


def add_zeros(data: bytearray, rng: random.Random) -> None:
    data += bytes(rng.randrange(1, 20 * BLOCK))


def swap_blocks(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((BLOCK, 4 * BLOCK, 8 * BLOCK))
    if len(data) < 2 * size:
        return
    count = len(data) // size
    one, other = (size * rng.randrange(count) for _ in range(2))
    data[one : one + size], data[other : other + size] = (
        data[other : other + size],
        data[one : one + size],
    )


def duplicate_block(data: bytearray, rng: random.Random) -> None:
    """Over another one, or between two."""
    size = min(rng.choice((BLOCK, 4 * BLOCK, 12 * BLOCK)), len(data))
    block = data[(start := rng.randrange(len(data) - size + 1)) : start + size]
    at = rng.randrange(len(data) - size + 1)
    data[at : at + (size if rng.random() < 0.5 else 0)] = block


Damager = Callable[[bytearray, random.Random], None]
IN_PLACE: tuple[Damager, ...] = (
    flip_bit,
    flip_bits,
    truncate,
    zero_block,
    overwrite_block,
    add_zeros,
)
MOVING: tuple[Damager, ...] = (swap_blocks, duplicate_block)


def damage_world(world: World, rng: random.Random, times: int) -> None:
    damagers = IN_PLACE if world.is_v07 else (*IN_PLACE, *MOVING)
    for _ in range(times):
        name = rng.choice(sorted(world.files))
        data = bytearray(world.files[name])
        if not data:
            continue
        damager = rng.choice(damagers)
        damager(data, rng)
        world.files[name] = bytes(data)
        world.damage.append(f"{damager.__name__} {name[-12:]}")


def duplicate_segment(world: World) -> None:
    """Put the second half of a segment into another one, that overlaps it."""
    name = max(world.files, key=lambda each: len(world.files[each]))
    inside = [each for each in world.batches if each.data in world.files[name]]
    second = inside[len(inside) // 2 :]
    other = log_file_name(second[0].first)
    world.files.setdefault(other, b"".join(each.data for each in second))


# --- what must be true ---------------------------------------------------------------------------


def intact_batches(world: World) -> list[Batch]:
    """The batches that damage has left whole."""
    if not world.is_v07:
        return _without_overlaps(world)
    found = []
    for each in world.batches:
        for name, data in world.files.items():
            position = each.first - int(name[:20])
            if position >= 0 and data[position : position + len(each.data)] == each.data:
                found.append(each)
                break
    return found


def _without_overlaps(world: World) -> list[Batch]:
    """Zeros at the end of a batch that is cut off may be those that another begins with: then only one of
    the two can be had."""
    found: dict[Batch, list[tuple[str, int, int]]] = {}
    for each in world.batches:
        for name, data in world.files.items():
            at = data.find(each.data)
            while at >= 0:
                found.setdefault(each, []).append((name, at, at + len(each.data)))
                at = data.find(each.data, at + 1)
    places = sorted(place for each in found.values() for place in each)
    shared = set()
    for one, other in pairwise(places):
        if one[0] == other[0] and other[1] < one[2]:
            shared |= {one, other}
    return [
        each
        for each, places in found.items()
        if not set(places) <= shared and not _may_be_inside_a_wrapper(world, each)
    ]


def _may_be_inside_a_wrapper(world: World, batch: Batch) -> bool:
    """A plain message of magic 1 at the beginning of a log could be part of a compressed one."""
    most = max(each.next - each.first for each in world.batches)
    (header,) = scan_batches(batch.data)
    return most > 1 and header.magic == 1 and header.codec == Codec.NONE and batch.first < most


def written_batches(folder: Path) -> list[Batch]:
    found = []
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH)))
    for path in sorted(folder.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            held, after, *_ = kernel.walk(data, at, len(data), rows, Check.CRC, -1, INT32_MAX)
            assert held, path
            batch = data[at:after]
            first, last = rows[Row.BASE_OFFSET], rows[Row.LAST_OFFSET]
            if first < 0:
                first, *_, last = (record.offset for record in (*decode_records(batch),) * 2)
            found.append(Batch(batch, first, last + 1))
            at = after
    return found


def written_entries(folder: Path) -> list[Batch]:
    found = []
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH)))
    for path in sorted(folder.glob("*.kafka")):
        data, at, base = path.read_bytes(), 0, int(path.stem)
        while at < len(data):
            held, after, *_ = kernel.walk_v07(data, at, len(data), rows, Check.CRC)
            assert held, path
            found.append(Batch(data[at:after], base + at, base + after))
            at = after
    return found


def states_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def salvage(world: World, target: Path, options: SalvageOptions | None = None) -> SalvagePlan:
    """Salvage, and check what is true of every salvage."""
    before = states_of(world.folder)
    plan = plan_salvage(FILES, str(world.partition), options or SalvageOptions())
    write_directory(FILES, [plan], str(target))
    assert states_of(world.folder) == before
    check_stored(world, plan, target)
    check_batches(world, plan, target)
    check_findings(plan, target)
    return plan


def check_stored(world: World, plan: SalvagePlan, target: Path) -> None:
    """Every byte of the segments is kept, or stored under its position."""
    stored = target / PARTITION / DAMAGED_DIR
    live = {n for n, source in enumerate(plan.sources) if not source.is_leftover}
    kept = sum(run.size_bytes for run in plan.kept if run.source in live)
    total = sum(plan.sources[number].size_bytes for number in live)
    assert kept + sum(each.size_bytes for each in plan.ranges) == total
    report = json.loads((stored / "report.json").read_text())
    for each, told in zip(plan.ranges, report["ranges"], strict=True):
        data = (world.partition / told["file"]).read_bytes()[each.start : each.end]
        assert (stored / told["stored_as"]).read_bytes() == data
    assert report["kept"]["records"] == plan.kept_records


def check_batches(world: World, plan: SalvagePlan, target: Path) -> None:
    folder = target / PARTITION
    found = written_entries(folder) if world.is_v07 else written_batches(folder)
    for one, other in pairwise(found):
        assert one.next <= other.first, "out of order"
    written = {each.data: each for each in found}
    rows = {} if world.is_v07 else {row.offset: row for some in found for row in rows_of(some)}
    for each in intact_batches(world):
        # The messages of a wrapper of magic 0 may have been found in another, damaged copy of it.
        is_there = each.data in written or (
            each.data[MAGIC_AT] == 0
            and not world.is_v07
            and all(rows.get(row.offset) == row for row in rows_of(each))
        )
        assert is_there, f"lost offsets {each.first} to {each.next - 1}: {world.damage}"
        if world.is_v07:
            assert any((each.first, each.data) == (some.first, some.data) for some in found)
    offsets = {offset for each in found for offset in range(each.first, each.next)}
    known = {each.data for each in world.batches}
    # No CRC covers the offset of a batch, and not every wrong one is contradicted by others. With a batch
    # under a wrong offset, nothing can be told of the offsets around it.
    is_misled = not world.is_v07 and not {each.data for each in found} <= known
    for each in world.batches:
        is_there = bool(offsets & set(range(each.first, each.next)))
        if not is_there and not is_misled:
            check_reported(plan, each)
    for lost in plan.lost:
        end = lost.next if lost.next is not None else max(offsets, default=0) + 1
        assert not any(
            each.first < end and each.next > lost.first for each in found if each.data in known
        )


def rows_of(batch: Batch) -> list[Record]:
    return list(decode_records(batch.data, check=Check.CRC | Check.INCLUDE_CONTROL))


def check_reported(plan: SalvagePlan, batch: Batch) -> None:
    """What was cut off the end of a log without a trace is beyond its end."""
    if batch.first >= plan.log_end:
        return
    assert any(
        lost.first <= batch.first and (lost.next is None or batch.next <= lost.next)
        for lost in plan.lost
    ), f"not reported: {batch.first} to {batch.next - 1}"


def check_findings(plan: SalvagePlan, target: Path) -> None:
    findings = verify(target)
    if plan.is_v07:
        findings = [each for each in findings if each.reason != "missing_records"]
        assert findings == []
        return
    assert findings == []
    expected = [run for run in plan.kept if run.records]
    logs = stratalog.open(target, read_only=True)
    try:
        rows = [
            record.offset for record in logs.read(TOPIC, isolation="read_uncommitted").records()
        ]
    finally:
        logs.close()
    assert len(rows) == sum(run.records for run in expected)
    assert rows == sorted(set(rows))


def verify(target: Path) -> list[Finding]:
    def fail(error: StorageError) -> None:
        raise error

    sources = find_sources(str(target))
    return [
        finding
        for report in verify_sources(sources, LocalCheck(FILES, deep=True), on_error=fail)
        for finding in report.findings
        if finding.severity != "note"
    ]


def seeds(count: int, kinds: Sequence[str] = tuple(KINDS)) -> list[tuple[str, int]]:
    return [(kinds[number % len(kinds)], number) for number in range(count)]
