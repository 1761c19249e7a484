"""Appends of several callers at once: the log is what it would be had each been appended alone, byte for
byte, and each gets the answer that it would have got."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    InvalidRecordError,
    LogFailedError,
    StorageError,
    StratalogError,
)
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.testing import Call, Explorer, Facts, Fault, FaultyFileSystem, MemoryFileSystem
from tests.storage.logs import T, batch, log_bytes, offsets, open_log, sent, values

SMALL = {
    "internal.segment.bytes": 2000,
    "index.interval.bytes": 150,
    "segment.index.bytes": 96,
    "max.message.bytes": 1500,
}


def some_append(rng: Random, sequences: dict[int, int]) -> bytes:
    """Whatever a caller may bring, the wrong things too."""
    kind = rng.randrange(12)
    value = rng.randbytes(rng.randrange(200))
    time = T + rng.randrange(10_000)
    if kind == 0:
        return batch(value, timestamp=time, codec=Codec(rng.randrange(1, 5)))
    if kind == 1:
        producer = rng.randrange(3)
        sequences[producer] = sequences.get(producer, 0) + 1
        return sent(producer, sequences[producer] - 1, value, timestamp=time)
    if kind == 2:
        return sent(9, rng.randrange(5), value)  # as a rule out of order
    if kind == 3:
        damaged = bytearray(batch(value))
        damaged[rng.randrange(len(damaged))] ^= 1
        return bytes(damaged)
    if kind == 4:
        return batch(rng.randbytes(2500))
    if kind == 5:
        return build_messages([Record(value, None, time)], MessageOptions(magic=rng.randrange(2)))
    if kind == 6:
        return batch(b"one") + batch(b"two")
    if kind == 7:
        return b""
    return batch(*[value] * rng.randrange(1, 4), timestamp=time)


def told(answer: object) -> object:
    return (type(answer), str(answer)) if isinstance(answer, StratalogError) else answer


@pytest.mark.parametrize("seed", range(30))
def test_it_is_as_if_each_had_come_alone(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    configs = dict(SMALL)
    if seed % 5 == 4:
        configs["segment.index.bytes"] = 10485760
    if seed % 6 == 5:
        configs["compression.type"] = "lz4"  # type: ignore[assignment]
    together, alone = open_log(tmp_path / "one", configs), open_log(tmp_path / "two", configs)
    sequences: dict[int, int] = {}
    for _ in range(15):
        appends = [some_append(rng, sequences) for _ in range(rng.choice((0, 1, 2, 7, 20)))]
        epoch = rng.choice((0, 0, 0, 1))
        answers = together.append_each(appends, leader_epoch=epoch)
        expected: list[AppendResult | StratalogError] = []
        for data in appends:
            try:
                expected.append(alone.append(data, leader_epoch=epoch))
            except StratalogError as error:
                expected.append(error)
        assert list(map(told, answers)) == list(map(told, expected))
    assert log_bytes(together) == log_bytes(alone)
    assert together.segments[-1].index.offsets == alone.segments[-1].index.offsets
    assert together.segments[-1].index.times == alone.segments[-1].index.times
    assert together.epochs == alone.epochs
    together.close()
    alone.close()
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_each_is_refused_for_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"max.message.bytes": 1000})
    log.append(batch(b"known epoch"))
    damaged = bytearray(batch(b"damaged"))
    damaged[-1] ^= 1
    answers = log.append_each(
        [batch(b"a"), damaged, batch(b"b"), batch(b"x" * 2000), batch(b"c", base_offset=7), batch(b"d")],
        sync=True,
    )  # fmt: skip
    kinds = [type(answer) for answer in answers]
    assert kinds == [
        AppendResult, CorruptionError, AppendResult, BatchTooLargeError, InvalidRecordError, AppendResult,
    ]  # fmt: skip
    assert values(log) == [b"known epoch", b"a", b"b", b"d"]
    assert [a.first_offset for a in answers if isinstance(a, AppendResult)] == [1, 2, 3]
    assert log.synced_offset == 4
    log.close()


def test_the_same_memory_twice_is_two_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"first"))
    again = bytearray(batch(b"again"))
    answers = log.append_each([again, again, again])
    assert [each.first_offset for each in answers if isinstance(each, AppendResult)] == [1, 2, 3]
    assert offsets(log) == [0, 1, 2, 3]
    log.close()


def test_one_write_and_one_sync_serve_all(tmp_path: Path) -> None:
    files = FaultyFileSystem(OsFileSystem())
    log = open_log(tmp_path, file_system=files)
    log.append(batch(b"known epoch"), sync=True)
    before = dict(files.counts)
    log.append_each([batch(b"v")] * 64, sync=True)
    assert files.counts[Call.WRITE] - before[Call.WRITE] == 1
    assert files.counts[Call.SYNC] - before[Call.SYNC] == 1
    assert log.synced_offset == 65
    log.close()


def test_without_room_none_is_there_and_when_there_is_they_go_on(tmp_path: Path) -> None:
    files = FaultyFileSystem(OsFileSystem())
    log = open_log(tmp_path, file_system=files)
    log.append(batch(b"known epoch"))
    files.arm(1, fault=Fault.SHORT_WRITE, sticky=True)
    answers = log.append_each([batch(b"a"), batch(b"b")])
    assert all(isinstance(answer, StorageError) for answer in answers)
    assert values(log) == [b"known epoch"]
    files.heal()
    assert log.failure is None
    log.append_each([batch(b"a"), batch(b"b")])
    assert values(log) == [b"known epoch", b"a", b"b"]
    log.close()


def test_a_write_that_fails_fails_the_log_for_all(tmp_path: Path) -> None:
    files = FaultyFileSystem(OsFileSystem())
    log = open_log(tmp_path, file_system=files)
    log.append(batch(b"known epoch"))
    files.arm(1, fault=Fault.EIO, calls=[Call.WRITE])
    answers = log.append_each([batch(b"a"), batch(b"b")])
    assert all(isinstance(answer, StorageError) for answer in answers)
    assert log.failure is not None
    assert all(isinstance(each, LogFailedError) for each in log.append_each([batch(b"c")] * 2))
    log.abandon()


def test_what_was_acknowledged_together_survives_a_power_cut() -> None:
    def appends(file_system: MemoryFileSystem, facts: Facts[int]) -> None:
        log = PartitionLog.open("/t-0", file_system=file_system, clock=file_system.clock)
        log.append(batch(b"0"), sync=True)
        for number in range(3):
            log.append_each([batch(b"%d %d" % (number, each)) for each in range(5)], sync=True)
            facts.note(1 + 5 * (number + 1))

    def check(file_system: MemoryFileSystem, facts: Facts[int]) -> None:
        log = PartitionLog.open("/t-0", file_system=file_system, clock=file_system.clock)
        found = offsets(log)
        assert found == list(range(len(found)))
        assert len(found) >= max(facts, default=0)
        log.abandon()

    explorer = Explorer(
        appends, check, states_per_point=20, start=lambda: MemoryFileSystem(folders=["/t-0"])
    ).run()
    assert explorer.crashes > 100
