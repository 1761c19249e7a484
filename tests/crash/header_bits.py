"""Flip the header bits that no CRC covers, and read the log with every reader.

A sound log directory lives in memory; each flip works on a fork of it. A reader returns rows, or numbers,
that must equal those of the sound log, or it raises a typed error. Anything else is silent loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import stratalog
from stratalog.errors import CorruptionError
from stratalog.inspect.count.partition import PartitionCount, count_partition, tally
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.offset_range import Anchor, Bound, OffsetRange
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.inspect.range.split import split_ranges
from stratalog.inspect.verify.directory import LocalCheck, verify_sources
from stratalog.records.builder import build_batch
from stratalog.records.columns import RECORD_COLUMNS, Selection, records_of
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.scan import scan_batches
from stratalog.storage.names import RECOVERY_CHECKPOINT
from stratalog.testing import MemoryFileSystem

ROOT, TOPIC = "/logs", "orders"
FOLDER = f"{ROOT}/{TOPIC}-0"
CLEAN_MARKER = f"{ROOT}/.kafka_cleanshutdown"
#: Segments of eight batches or so, with an index entry for every second one.
CONFIG = {"internal.segment.bytes": 800, "index.interval.bytes": 150, "segment.index.bytes": 4096}
RECORDS_A_BATCH = 3
BATCHES = 27

Row = tuple[int, bytes | None]
Bounds = tuple[int | None, int | None]


@dataclass(frozen=True)
class Format:
    """A batch format, and how many leading bytes of a batch its CRC leaves out."""

    name: str
    head_bytes: int
    build: Callable[[list[Record], int], bytes]


def _messages(magic: int, codec: Codec) -> Callable[[list[Record], int], bytes]:
    options = MessageOptions(magic=magic, codec=codec)
    return lambda records, base: build_messages(records, options, base_offset=base)


FORMATS = (
    Format("v2", 17, lambda records, _: build_batch(records)),
    Format("v1", 12, _messages(1, Codec.NONE)),
    Format("v1 gzip", 12, _messages(1, Codec.GZIP)),
    Format("v0", 12, _messages(0, Codec.NONE)),
    Format("v0 gzip", 12, _messages(0, Codec.GZIP)),
)


class Batch(NamedTuple):
    """Where a batch of the sound log lies."""

    path: str
    position: int
    first_offset: int
    last_offset: int
    offset_field: int
    is_last_in_log: bool

    @property
    def nearby(self) -> list[Bounds]:
        """Bounds of reads that begin or end at the batch, inside of it, or beside it."""
        first, end = self.first_offset, self.last_offset + 1
        return [
            (None, None),
            (0, first),
            (0, end),
            (first, end),
            (first + 1, end),
            (end, None),
            (end, end + 6),
            (first - 6, end + 6),
            (0, end + 1),
        ]


class Flip(NamedTuple):
    """One bit of one batch's header."""

    batch: Batch
    bit: int

    @property
    def at(self) -> int:
        """The byte within the batch."""
        return self.bit // 8

    def apply(self, disk: MemoryFileSystem) -> MemoryFileSystem:
        forked = disk.fork()
        position = self.batch.position + self.at
        (byte,) = forked.read_bytes(self.batch.path)[position : position + 1]
        file = forked.open_writable(self.batch.path)
        file.write_at(position, bytes([byte ^ 1 << self.bit % 8]))
        file.close()
        return forked

    @property
    def is_undetectable(self) -> bool:
        """Whether nothing in the log contradicts the bit: it raises the offset of the very last batch,
        which nothing follows. What lies before it stays readable, and its records keep their order. Only
        the recovery point of a clean shutdown contradicts it."""
        return self.batch.is_last_in_log and self.at < 8 and self._raises_offset

    @property
    def _raises_offset(self) -> bool:
        return not self.batch.offset_field >> (63 - self._bit_of_field) & 1

    @property
    def _bit_of_field(self) -> int:
        """The bit of the offset, counted from its highest one."""
        return 8 * self.at + 7 - self.bit % 8

    def __str__(self) -> str:
        return f"bit {self.bit} of the batch at byte {self.batch.position} of {self.batch.path}"


class Sound(NamedTuple):
    """The log directory before anything happens to it."""

    disk: MemoryFileSystem
    rows: tuple[Row, ...]
    segments: tuple[tuple[Batch, ...], ...]

    @property
    def end(self) -> int:
        return self.rows[-1][0] + 1

    def fits(self, bounds: Bounds) -> bool:
        """Whether the bounds lie within the log: others are refused."""
        start, end = bounds
        return 0 <= (start or 0) <= self.end and (end is None or end <= self.end)

    def between(self, start: int | None, end: int | None) -> list[Row]:
        first, last = start or 0, self.end if end is None else end
        return [row for row in self.rows if first <= row[0] < last]

    def chosen(self) -> list[Batch]:
        """The first, a middle and the last batch, of a middle segment and of the last one."""
        found = []
        for segment in (self.segments[1], self.segments[-1]):
            found += [segment[0], segment[len(segment) // 2], segment[-1]]
        return found


@cache
def sound_log(name: str) -> Sound:
    """A log directory of the format, as an orderly stop leaves it."""
    (form,) = (each for each in FORMATS if each.name == name)
    disk = MemoryFileSystem(folders=[ROOT])
    now = disk.clock.now_ms()
    rows: list[Row] = []
    built: list[bytes] = []
    for number in range(BATCHES):
        base = number * RECORDS_A_BATCH
        values = [b"value %d" % (base + each) for each in range(RECORDS_A_BATCH)]
        rows += [(base + each, value) for each, value in enumerate(values)]
        records = [Record(value, timestamp=now + number) for value in values]
        built.append(form.build(records, base))
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create(TOPIC, 1, CONFIG)
        log = logs.partition(TOPIC, 0)
        for data in built if name == "v2" else ():
            log.append(data)  # it gives the offsets
    if name != "v2":
        _replace_with_messages(disk, built)
    disk.sync_all()
    paths = sorted(path for path in disk.paths() if path.endswith(".log"))
    segments = tuple(tuple(_batches(disk, path, path == paths[-1])) for path in paths)
    assert [len(each) for each in segments][-1] >= 3, [len(each) for each in segments]
    return Sound(disk, tuple(rows), segments)


def _replace_with_messages(disk: MemoryFileSystem, built: list[bytes]) -> None:
    """Files of an old broker in the place of the empty log; opening them makes their indexes."""
    for path in disk.paths():
        if path.startswith(FOLDER + "/") and path.rsplit("/", 1)[1][0].isdigit():
            disk.unlink(path)
    for number in range(0, len(built), 8):
        path = f"{FOLDER}/{number * RECORDS_A_BATCH:020d}.log"
        file = disk.open_writable(path, create=True)
        file.write_at(0, b"".join(built[number : number + 8]))
        file.close()
    disk.unlink(CLEAN_MARKER)
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.partition(TOPIC, 0)


def _batches(disk: MemoryFileSystem, path: str, is_last: bool) -> Iterator[Batch]:
    data = disk.read_bytes(path)
    first = int(path.rsplit("/", 1)[1].removesuffix(".log"))
    for header in scan_batches(data):
        ends = header.end_position == len(data)
        field = int.from_bytes(data[header.position : header.position + 8], "big")
        yield Batch(path, header.position, first, header.last_offset, field, ends and is_last)
        first = header.next_offset


# --- the readers ---------------------------------------------------------------------------------


def _source(disk: MemoryFileSystem) -> PartitionSource:
    (source,) = find_sources(ROOT, file_system=disk).partitions
    return source


def scan(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    start, end = bounds
    table = stratalog.scan(
        ROOT, start=start, end=end, columns=["offset", "value"], file_system=disk
    ).to_table()
    return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def range_plan(disk: MemoryFileSystem, bounds: Bounds, split_bytes: int | None = None) -> list[Row]:
    """As a Spark read does it: ends, a plan, splits, and a reader for each."""
    source = _source(disk)
    cache = EndsCache(disk)
    ends = cache.ends_of(source)
    start, end = bounds
    if ends.damage is not None and (end is None or end > ends.end):
        raise ends.damage
    planned = plan_range(source, start, end, disk, cache=cache, cut_bytes=200)
    groups = (
        [(planned,)] if split_bytes is None else split_ranges([planned], split_bytes=split_bytes)
    )
    rows: list[Row] = []
    for group in groups:
        for each in group:
            reader = RangeReader(Selection(columns=RECORD_COLUMNS), disk)
            for _, taken in reader.read(each):
                rows += [(record.offset, record.value) for record in records_of(taken)]
            if reader.vanished:
                raise stratalog.StorageError("offsets are lost", path=source.folder)
    return rows


def split_plan(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    return range_plan(disk, bounds, split_bytes=300)


def bare_plan(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    """A plan alone, by a caller who never asks for the ends."""
    planned = plan_range(_source(disk), *bounds, disk, cut_bytes=200)
    reader = RangeReader(Selection(columns=RECORD_COLUMNS), disk)
    rows = [
        (record.offset, record.value)
        for _, taken in reader.read(planned)
        for record in records_of(taken)
    ]
    if reader.vanished:
        raise stratalog.StorageError("offsets are lost", path=planned.folder)
    return rows


def _read_logs(disk: MemoryFileSystem, bounds: Bounds, *, read_only: bool) -> list[Row]:
    start, end = bounds
    logs = stratalog.open(ROOT, read_only=read_only, file_system=disk, clock=disk.clock)
    try:
        read = logs.read(TOPIC, start=start, end=end)
        return [(record.offset, record.value) for record in read.records()]
    finally:
        logs.close()


def read_only_open(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    return _read_logs(disk, bounds, read_only=True)


def writing_open(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    return _read_logs(disk.fork(), bounds, read_only=False)


def recovery(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    """The process died, and no checkpoint says how far the log was synced."""
    disk = disk.fork()
    disk.unlink(CLEAN_MARKER)
    disk.unlink(f"{ROOT}/{RECOVERY_CHECKPOINT}")
    return _read_logs(disk, bounds, read_only=False)


def recovery_from_checkpoint(disk: MemoryFileSystem, bounds: Bounds) -> list[Row]:
    """The process died; what lies before the recovery point was synced."""
    disk = disk.fork()
    disk.unlink(CLEAN_MARKER)
    return _read_logs(disk, bounds, read_only=False)


READERS: dict[str, Callable[[MemoryFileSystem, Bounds], list[Row]]] = {
    "scan": scan,
    "range plan": range_plan,
    "range plan alone": bare_plan,
    "range plan in splits": split_plan,
    "read-only open": read_only_open,
    "writing open": writing_open,
}
#: These find no clean shutdown: the marker is gone before they open the log.
RECOVERIES: dict[str, Callable[[MemoryFileSystem, Bounds], list[Row]]] = {
    "recovery": recovery,
    "recovery from the checkpoint on": recovery_from_checkpoint,
}


# --- readers that answer with numbers ------------------------------------------------------------


def count(disk: MemoryFileSystem, bounds: Bounds) -> int:
    """``stratalog count``; CorruptionError where its status is not ok."""
    start, end = bounds
    wanted = OffsetRange(
        None if start is None else Bound(Anchor.ZERO, start),
        None if end is None else Bound(Anchor.ZERO, end),
        None,
        None,
    )
    return _records_of(count_partition(_source(disk), wanted, file_system=disk))


def ls(disk: MemoryFileSystem) -> tuple[int, int]:
    """``stratalog ls``: how many records, and where the log ends."""
    counted = count_partition(_source(disk), every_segment=True, times=True, file_system=disk)
    return _records_of(counted), counted.end_offset


def _records_of(counted: PartitionCount) -> int:
    sums = tally(counted.segments)
    if sums.status != "ok":
        raise CorruptionError(sums.status, "the status is not ok")
    return sums.records


def verify(disk: MemoryFileSystem) -> tuple[int, int]:
    """``stratalog verify``: how many records, and where the log ends; CorruptionError for findings."""
    sources = find_sources(ROOT, file_system=disk)
    check = LocalCheck(disk)
    reports = list(verify_sources(sources, check, file_system=disk, on_error=_raise))
    for report in reports:
        if report.status != "ok":
            raise CorruptionError(report.status, "there are findings")
    logs = [report for report in reports if report.path.endswith(".log")]
    return sum(report.records for report in logs), logs[-1].next_offset


def _raise(error: stratalog.StorageError) -> None:
    raise error


# --- what becomes of a flip ----------------------------------------------------------------------


class Case(NamedTuple):
    """A reader, and what it must answer for the sound log."""

    reader: str
    bounds: Bounds | None
    ask: Callable[[MemoryFileSystem], object]
    answer: object
    #: Whether the reader finds the directory as a clean shutdown leaves it.
    is_clean: bool = True

    def outcome(self, flip: Flip, damaged: MemoryFileSystem) -> str:
        """``right``, ``error`` or ``undetectable``; AssertionError where records are lost in silence."""
        try:
            is_right = self.ask(damaged) == self.answer
        except CorruptionError:
            return "error"
        if is_right:
            return "right"
        is_provable = self.is_clean or not flip.is_undetectable
        assert not is_provable, f"{flip}: {self.reader} of {self.bounds} answers something else"
        return "undetectable"


def cases(sound: Sound, flip: Flip) -> list[Case]:
    """Everything that is asked of a log with this flip. What a clean shutdown proves wrong is also asked
    of the log without one."""
    found = _clean_cases(sound, flip)
    if flip.is_undetectable:
        found += [
            case._replace(
                reader=f"{case.reader} without a clean shutdown",
                ask=partial(_without_marker, case.ask),
                is_clean=False,
            )
            for case in found
        ]
    for bounds in filter(sound.fits, flip.batch.nearby):
        rows = sound.between(*bounds)
        for name, read in RECOVERIES.items():
            found.append(Case(name, bounds, partial(_call, read, bounds), rows, is_clean=False))
    return found


def _clean_cases(sound: Sound, flip: Flip) -> list[Case]:
    found = []
    for bounds in flip.batch.nearby:
        if not sound.fits(bounds):
            continue
        rows = sound.between(*bounds)
        for name, read in READERS.items():
            found.append(Case(name, bounds, partial(_call, read, bounds), rows))
        found.append(Case("count", bounds, partial(_call, count, bounds), len(rows)))
    whole = (len(sound.rows), sound.end)
    return [*found, Case("ls", None, ls, whole), Case("verify", None, verify, whole)]


def _without_marker(ask: Callable[[MemoryFileSystem], object], disk: MemoryFileSystem) -> object:
    disk = disk.fork()
    disk.unlink(CLEAN_MARKER)
    return ask(disk)


def _call(
    read: Callable[[MemoryFileSystem, Bounds], object], bounds: Bounds, disk: MemoryFileSystem
) -> object:
    return read(disk, bounds)
