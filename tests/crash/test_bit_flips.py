"""Every bit of a small log is flipped, and every file cut at every byte: found out, or harmless.

Goal: no wrong record is ever served and nothing is cut away in silence (C1); what is wrong stays confined to
its batch (C2). Method: three segments with ten batches of all kinds; each mutation is opened in three ways
(through recovery, through recovery from the last segment on, as after an orderly stop) and read to the end
with CRCs checked. A mutation ends as one of:

    refused     the log does not open, and says why
    cut         only the torn tail is gone, and the report says so
    found       reading says where the damage is
    same        everything reads as before
    moved       the same, under a leader epoch or at an offset that is not the one it was written with

The last one is what nobody can tell from the log alone, because the CRC of a batch does not cover its first
seventeen bytes; ``is_beyond_telling`` lists it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest

from stratalog.errors import CorruptionError, DamagedLogError
from stratalog.inspect.verify import verify_files
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Check, Codec
from stratalog.records.model import Record, RecordHeader
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import MemoryFileSystem
from stratalog.testing.log_model import ModelBatch
from tests.crash.promises import contents, split
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]
FOLDER = "/t-0"
CONFIG = LogConfig.of(segment_index_bytes=240, index_interval_bytes=100)
MODES = ("recovered", "recovered from the last segment on", "after an orderly stop")


class Original(NamedTuple):
    """The log before anything happens to it."""

    disk: MemoryFileSystem
    #: The bytes of each segment's data file, oldest first, under its path.
    logs: dict[str, bytes]
    batches: tuple[ModelBatch, ...]

    @property
    def whole(self) -> bytes:
        return b"".join(self.logs.values())

    def batch_at(self, path: str, position: int) -> tuple[ModelBatch, int]:
        """The batch that holds a byte of a file, and where in the batch it is."""
        at = 0
        for part in split(self.logs[path]):
            if position < at + len(part):
                return ModelBatch.of(part), position - at
            at += len(part)
        raise AssertionError


@cache
def original() -> Original:
    disk = MemoryFileSystem(folders=[FOLDER])
    log = PartitionLog.open(FOLDER, CONFIG, file_system=disk, clock=disk.clock, watermark="written")
    now = disk.clock.now_ms()

    def batch(*values: bytes, **options: object) -> bytes:
        records = [Record(each, timestamp=now + n) for n, each in enumerate(values)]
        return build_batch(records, BatchOptions(**options))  # type: ignore[arg-type]

    of_one = {"producer_id": 1, "producer_epoch": 0}
    of_two = {"producer_id": 2, "producer_epoch": 3, "is_transactional": True}
    abort = build_marker(
        ControlType.ABORT, offset=0, timestamp=now, producer_id=2, producer_epoch=3,
        coordinator_epoch=0,
    )  # fmt: skip
    log.append(batch(b"a"))
    log.append(batch(b"b", b"c"))
    log.append(batch(b"d", **of_one, base_sequence=0))
    log.append(batch(b"e", **of_two, base_sequence=0))
    log.roll()
    log.append(batch(b"f" * 30, codec=Codec.ZSTD), leader_epoch=2)
    log.append(batch(b"g", **of_two, base_sequence=1), leader_epoch=2)
    log.append(abort, leader_epoch=2, origin=Origin.COORDINATOR)
    log.roll()
    log.append(batch(b"h", **of_one, base_sequence=1), leader_epoch=2)
    log.append(build_batch([Record(b"i", b"key", now, (RecordHeader("h", None),))]), leader_epoch=2)
    log.append(batch(b"", b"j"), leader_epoch=2)
    log.close()
    disk.sync_all()
    logs = {path: disk.read_bytes(path) for path in disk.paths() if path.endswith(".log")}
    batches = tuple(ModelBatch.of(part) for data in logs.values() for part in split(data))
    assert len(logs) == 3
    assert len(batches) == 10
    return Original(disk, logs, batches)


def opened(disk: MemoryFileSystem, mode: str) -> PartitionLog:
    last_base = original().batches[7].base_offset
    return PartitionLog.open(
        FOLDER,
        CONFIG,
        file_system=disk,
        clock=disk.clock,
        recovery_point=last_base if mode == MODES[1] else 0,
        is_clean=mode == MODES[2],
        watermark="written",
    )


def outcome(disk: MemoryFileSystem, mode: str) -> str:
    """What becomes of a log that was changed. Whatever is served was appended just so."""
    sound = original()
    try:
        log = opened(disk, mode)
    except DamagedLogError as error:
        return "refused" if error.path and error.advice else "refused without advice"
    try:
        data = contents(log)
        records = list(decode_records(data, check=Check.CRC | Check.ORDER | Check.INCLUDE_CONTROL))
        served = read_by_offset(log)
    except CorruptionError:
        return "found"
    wanted = [record for batch in sound.batches for record in batch.records]
    if log.report.cuts:
        cut = log.report.cuts[0]
        assert sound.whole.startswith(data), "what is left is not what was there"
        assert len(sound.whole) - len(data) >= cut.size_bytes > 0
        assert cut.from_offset == log.log_end == records[-1].offset + 1
        assert records == wanted[: len(records)]
        return "cut"
    if data == sound.whole:
        assert served == [batch.data for batch in sound.batches]
        return "same"
    return "moved" if [r.value for r in records] == [r.value for r in wanted] else "missing"


def read_by_offset(log: PartitionLog) -> list[bytes]:
    """Every batch, by asking for its offset."""
    offset, parts = log.log_start, []
    while offset < log.log_end:
        read = log.read(offset, 1, Isolation.LOG_END)
        if read.region is None:
            break
        data = bytes(read.region.read())
        list(decode_records(data, check=Check.CRC | Check.INCLUDE_CONTROL))
        parts.append(data)
        offset = ModelBatch.of(data).next_offset
    return parts


def is_beyond_telling(path: str, position: int, mode: str) -> bool:
    """Bits that the log alone cannot tell to be wrong.

    - The leader epoch (bytes 12 to 15): no CRC covers it, and any epoch may follow any other.
    - The base offset (bytes 0 to 7) of the last batch, raised: nothing behind it contradicts.
    - The same of the last batch of another segment, where that segment is not walked.
    """
    sound = original()
    batch, at = sound.batch_at(path, position)
    if 12 <= at < 16:
        return True
    is_last = batch == sound.batches[-1]
    ends_segment = batch.data == split(sound.logs[path])[-1]
    return at < 8 and (is_last or (ends_segment and mode != MODES[0]))


@pytest.mark.parametrize("mode", MODES)
def test_every_flipped_bit_is_found_out_or_harmless(mode: str, record_property: Counted) -> None:
    sound = original()
    seen: Counter[str] = Counter()
    stride = sized(7, 1 if mode == MODES[0] or SCALE > 1 else 3)  # each bit of a byte in turn
    for path, data in sound.logs.items():
        for bit in range(0, 8 * len(data), stride):
            position = bit // 8
            disk = sound.disk.fork()
            file = disk.open_writable(path)
            file.write_at(position, bytes([data[position] ^ 1 << bit % 8]))
            result = outcome(disk, mode)
            seen[result] += 1
            batch, at = sound.batch_at(path, position)
            where = f"bit {bit} of {path}, byte {at} of the batch at {batch.base_offset}, {mode}"
            if result == "moved":
                assert is_beyond_telling(path, position, mode), f"{where}: nobody noticed"
            elif result == "cut":
                assert batch == sound.batches[-1], f"{where}: more than the tail was cut"
            else:
                assert result in ("refused", "found"), f"{where}: {result}"
    record_property(f"counted: flipped bits, {mode}", sum(seen.values()))
    record_property(
        "counted: flipped bits that are beyond telling (leader epoch, last base offset)",
        seen["moved"],
    )


@pytest.mark.parametrize("mode", MODES)
def test_every_truncation_is_found_out_or_harmless(mode: str, record_property: Counted) -> None:
    """A segment that lost whole batches at its end looks like one that was compacted: where it is not the
    last one, that is beyond telling, unless its index or the recovery point knows better."""
    sound = original()
    seen: Counter[str] = Counter()
    for path, data in sound.logs.items():
        boundaries = [0]
        for part in split(data):
            boundaries.append(boundaries[-1] + len(part))
        for size in range(len(data)):
            disk = sound.disk.fork()
            disk.open_writable(path).truncate(size)
            result = outcome(disk, mode)
            seen[result] += 1
            is_last = path == max(sound.logs)
            where = f"{path} cut at byte {size} of {len(data)}, {mode}"
            if result == "missing":
                assert size in boundaries, f"{where}: records are missing, and nobody noticed"
            elif result == "cut":
                assert is_last, f"{where}: more than the tail was cut"
            else:
                assert result in ("refused", "found"), f"{where}: {result}"
    record_property(f"counted: truncations, {mode}", sum(seen.values()))


def test_damage_is_confined_to_its_batch() -> None:
    """``verify`` reads every other batch, as long as the size of the damaged one can be believed."""
    sound = original()
    counts = [len(batch.records) for batch in sound.batches]
    number = 0
    for path, data in sound.logs.items():
        position = 0
        for part in split(data):
            for at in range(len(part)):
                if at < 17:
                    continue  # its place and its size: those are told by what follows, or hide it
                disk = sound.disk.fork()
                disk.open_writable(path).write_at(position + at, bytes([part[at] ^ 0x10]))
                reports = list(verify_files(list(sound.logs), file_system=disk))
                findings = [each for report in reports for each in report.findings]
                assert [(each.path, each.position) for each in findings] == [(path, position)]
                records = sum(report.records + report.control_records for report in reports)
                assert records == sum(counts) - counts[number]
            position += len(part)
            number += 1


FLIPPED_INDEXES = (".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize("suffix", FLIPPED_INDEXES)
def test_a_flipped_bit_beside_the_log_never_hides_a_record(suffix: str) -> None:
    """Whatever an index says, what is served by offset is what the log holds, and all of it."""
    sound = original()
    for path in sound.disk.paths():
        if not path.endswith(suffix):
            continue
        data = sound.disk.read_bytes(path)
        for bit in range(0, 8 * len(data), sized(23, 1 if SCALE > 1 else 5)):
            disk = sound.disk.fork()
            disk.open_writable(path).write_at(bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
            for mode in MODES:
                assert outcome(disk.fork(), mode) == "same", f"bit {bit} of {path}, {mode}"


@pytest.mark.parametrize("suffix", FLIPPED_INDEXES)
@pytest.mark.parametrize("damage", ["gone", "empty", "zeros", "ones", "cut", "longer", "astray"])
def test_a_spoilt_index_is_made_anew(suffix: str, damage: str) -> None:
    """Deleted, truncated, zeroed or random: the answers are the same (I1)."""
    sound = original()
    for path in sound.disk.paths():
        if not path.endswith(suffix):
            continue
        disk = sound.disk.fork()
        spoil(disk, path, damage)
        for mode in MODES:
            assert outcome(disk.fork(), mode) == "same"


def spoil(disk: MemoryFileSystem, path: str, damage: str) -> None:
    size = len(disk.read_bytes(path))
    if damage == "gone":
        disk.unlink(path)
        return
    file = disk.open_writable(path)
    match damage:
        case "empty":
            file.truncate(0)
        case "zeros":
            file.write_at(0, bytes(size))
        case "ones":
            file.write_at(0, b"\xff" * size)
        case "cut":
            file.truncate(max(0, size - 1))
        case "astray":  # of an offset index, an entry for a place behind the end of the log
            file.truncate(0)
            file.write_at(0, (1).to_bytes(4) + (10_000).to_bytes(4))
        case "longer":
            file.write_at(size, b"\1" * 24)
