"""Index files: their sizes through a segment's life, and that whatever becomes of them, look-ups are right.

The rule (I1, I2): any index that is deleted, cut, zeroed, random or of another segment gives the same
answers as reading the log from its beginning, after an orderly stop and after a crash.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType
from stratalog.records.layout import Check, Codec
from stratalog.records.model import Record
from stratalog.records.scan import scan_batches
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from tests.scale import SCALE
from tests.storage.logs import (
    T,
    again,
    batch,
    crash,
    end_txn,
    files,
    in_txn,
    log_bytes,
    name,
    open_log,
    records,
    reopen,
)

KINDS = (".index", ".timeindex", ".txnindex")


# --- sizes ---------------------------------------------------------------------------------------


def test_67_bytes_asked_for_give_64_and_60(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"segment.index.bytes": 67, "index.interval.bytes": 0})
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (64, 60)
    for at in range(4):
        log.append(batch(b"v", timestamp=T + at))
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (64, 60)
    log = reopen(log)
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (64, 60)
    log.truncate(2)
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (64, 60)
    log = crash(log)
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (64, 60)
    log.close()
    assert (files(tmp_path)["0.index"], files(tmp_path)["0.timeindex"]) == (8, 12)


def test_the_worked_example(tmp_path: Path) -> None:
    """Part 4.11: batches of 1000 bytes, one entry for more than 4096 bytes, and never for the first."""
    log = open_log(tmp_path)
    data = batch(bytes(1000 - 61 - 9))
    assert len(data) == 1000
    for _ in range(17):
        log.append(data)
    wanted = b"".join(struct.pack(">ii", at, 1000 * at) for at in (5, 10, 15))
    assert bytes(log.segments[0].index.offsets) == wanted
    log.close()
    assert (tmp_path / name(0, ".index")).read_bytes() == wanted
    assert (tmp_path / name(0, ".timeindex")).read_bytes() == struct.pack(">qi", T, 0)
    (tmp_path / name(0, ".index")).unlink()
    open_log(tmp_path).close()
    assert (tmp_path / name(0, ".index")).read_bytes() == wanted


def test_times_are_indexed_at_the_first_batch_that_has_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"index.interval.bytes": 0})
    for timestamp in (T, T + 5, T + 5, T + 2, T + 9, T + 1):
        log.append(batch(b"v", timestamp=timestamp))
    entries = [(T + 5, 1), (T + 9, 4)]
    assert bytes(log.segments[0].index.times) == b"".join(struct.pack(">qi", *e) for e in entries)
    log.close()
    # All that there is to say is said: closing adds nothing.
    assert (tmp_path / name(0, ".timeindex")).stat().st_size == 24


def test_entries_written_by_a_flush_and_by_the_close_are_one_list(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"index.interval.bytes": 100})
    for at in range(30):
        log.append(batch(b"value", timestamp=T + at))
        if at % 7 == 0:
            log.flush()
    log.close()
    kept = {kind: (tmp_path / name(0, kind)).read_bytes() for kind in KINDS[:2]}
    log = open_log(tmp_path, {"index.interval.bytes": 100})  # recovery makes them anew
    log.close()
    assert {kind: (tmp_path / name(0, kind)).read_bytes() for kind in KINDS[:2]} == kept
    assert len(kept[".index"]) == 8 * 14


# --- damage --------------------------------------------------------------------------------------


class Answers(NamedTuple):
    """What a log says when it is asked everything."""

    by_offset: list[tuple[int, int]]
    by_time: list[tuple[int, int] | None]
    largest: tuple[int, int] | None
    committed: list[Record]
    end: int


CONFIGS = {
    "internal.segment.bytes": 2500,
    "index.interval.bytes": 200,
    "segment.index.bytes": 400,
}


def write_log(folder: Path, seed: int) -> None:
    """A log of several segments: sizes, times and codecs at random, transactions, some aborted."""
    rng = random.Random(seed)
    log = open_log(folder, CONFIGS)
    sequence = {1: 0, 2: 0}
    now = T
    for _ in range(rng.randint(30, 90)):
        now += rng.choice((0, 1, 1, 2, 30, -20))
        values = [rng.randbytes(rng.choice((1, 5, 40, 300))) for _ in range(rng.choice((1, 1, 3)))]
        codec = rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
        producer = rng.choice((0, 1, 2))
        if not producer:
            log.append(batch(*values, timestamp=now, codec=codec))
            continue
        log.append(in_txn(producer, sequence[producer], *values, timestamp=now, codec=codec))
        sequence[producer] += len(values)
        if rng.random() < 0.5:
            end_txn(
                log, rng.choice((ControlType.ABORT, ControlType.COMMIT)), producer, timestamp=now
            )
    log.close()


def ask(log: PartitionLog) -> Answers:
    log.advance_high_watermark(log.log_end)
    by_offset = []
    for offset in range(log.log_end):
        region = log.read(offset).region
        assert region is not None
        by_offset.append((int(Path(region.file.path).stem), region.position))
    times = sorted({T - 30, *(T + at for at in range(-25, 400, 3))})
    found = [log.offset_for_time(time) for time in times]
    largest = log.offset_of_largest_time()
    return Answers(
        by_offset,
        [None if each is None else (each.offset, each.timestamp) for each in found],
        None if largest is None else (largest.offset, largest.timestamp),
        records(log, None, Isolation.COMMITTED),
        log.log_end,
    )


def scan(folder: Path, log: PartitionLog) -> Answers:
    """The same without any index: every batch of every file is looked at."""
    by_offset: dict[int, tuple[int, int]] = {}
    timed: list[list[tuple[int, int]]] = []
    for segment in log.segments:
        data = (folder / name(segment.base_offset, ".log")).read_bytes()[: segment.size_bytes]
        timed.append([])
        for header in scan_batches(data):
            for offset in range(header.base_offset, header.last_offset + 1):
                by_offset[offset] = (segment.base_offset, header.position)
                # All records of a batch have one time here.
                timed[-1].append((offset, header.max_timestamp))
    times = sorted({T - 30, *(T + at for at in range(-25, 400, 3))})
    flat = [pair for each in timed for pair in each]
    largest = max(time for _, time in flat)

    def first(time: int) -> tuple[int, int] | None:
        for each in timed:
            if each and max(t for _, t in each) >= time:
                return next(pair for pair in each if pair[1] >= time)
        return None

    return Answers(
        [by_offset[offset] for offset in range(log.log_end)],
        [first(time) for time in times],
        next(pair for pair in flat if pair[1] == largest),
        committed_in(log_bytes(log), log.log_end),
        log.log_end,
    )


def committed_in(data: bytes, end: int) -> list[Record]:
    """What read_committed shows, told from the markers alone."""
    kept: list[Record] = []
    open_: dict[int, list[Record]] = {}
    for header in scan_batches(data):
        part = data[header.position : header.end_position]
        if header.is_control:
            (marker,) = decode_records(part, check=Check.INCLUDE_CONTROL)
            decided = open_.pop(header.producer_id, [])
            if marker.key == struct.pack(">hh", 0, ControlType.COMMIT):
                kept += decided
        elif header.is_transactional:
            open_.setdefault(header.producer_id, []).extend(decode_records(part))
        else:
            kept += decode_records(part)
    stable = min((records[0].offset for records in open_.values()), default=end)
    return sorted((each for each in kept if each.offset < stable), key=lambda each: each.offset)


DAMAGES = ("delete", "cut", "entries", "zeros", "random", "flip", "past the end", "another", "grow")


def damage(rng: random.Random, folder: Path, how: str, kinds: tuple[str, ...]) -> str:
    """Do it to some index file of some segment; what was done."""
    found = sorted(path for path in folder.iterdir() if path.suffix in kinds)
    path = rng.choice(found)
    data = bytearray(path.read_bytes())
    size = {".index": 8, ".timeindex": 12, ".txnindex": 34}[path.suffix]
    match how:
        case "delete":
            path.unlink()
            return f"{path.name}: {how}"
        case "cut":
            del data[rng.randint(0, len(data)) :]
        case "entries":
            del data[rng.randint(0, len(data) // size) * size :]
        case "zeros":
            data = bytearray(len(data))
        case "random":
            data = bytearray(rng.randbytes(len(data)))
        case "flip" if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case "past the end" if path.suffix == ".index":
            data += struct.pack(">ii", 10**6, 10**6)
        case "past the end" if path.suffix == ".timeindex":
            data += struct.pack(">qi", T + 10**6, 10**6)
        case "another":
            data = bytearray(rng.choice(found).read_bytes())
        case "grow":
            data += bytes(rng.choice((1, size, 400)))
    path.write_bytes(data)
    return f"{path.name}: {how}"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Answers]]:
    """Some logs, and what each says when nothing is wrong."""
    made = []
    for seed in range(6):
        folder = tmp_path_factory.mktemp("logs") / "log"
        write_log(folder, seed)
        log = open_log(folder, CONFIGS, is_clean=True)
        want = scan(folder, log)
        assert ask(log) == want
        assert len(log.segments) > 3
        log.close()
        made.append((folder, want))
    return made


@settings(
    max_examples=60 * SCALE,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    which=st.integers(0, 5),
    seed=st.integers(0, 2**32),
    hows=st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=4),
    is_clean=st.booleans(),
)
@example(which=0, seed=0, hows=["entries"], is_clean=True)
@pytest.mark.scaled
def test_damaged_indexes_give_the_answers_of_a_scan(
    logs: list[tuple[Path, Answers]], which: int, seed: int, hows: list[str], is_clean: bool
) -> None:
    """Offset and time indexes, of sealed segments and the active one."""
    check_damaged(logs[which], seed, hows, KINDS[:2], is_clean=is_clean)


@pytest.mark.parametrize("how", ["delete", "cut", "zeros", "random", "another"])
@pytest.mark.parametrize("seed", range(3))
def test_damaged_transaction_indexes_are_made_anew(
    logs: list[tuple[Path, Answers]], how: str, seed: int
) -> None:
    """After a crash all of them are; after an orderly stop what cannot be one."""
    for which in range(6):
        check_damaged(logs[which], seed, [how], KINDS[2:], is_clean=False)


def check_damaged(
    made: tuple[Path, Answers],
    seed: int,
    hows: list[str],
    kinds: tuple[str, ...],
    *,
    is_clean: bool,
) -> None:
    source, want = made
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "log"
        shutil.copytree(source, folder)
        done = [damage(rng, folder, how, kinds) for how in hows]
        point = want.end if is_clean else 0
        log = open_log(folder, CONFIGS, is_clean=is_clean, recovery_point=point)
        try:
            assert ask(log) == want, done
            assert log_bytes(log) == b"".join(
                path.read_bytes() for path in sorted(source.glob("*.log"))
            )
        finally:
            log.close()
        # What was closed is as if nothing had been: also for who trusts it.
        log = open_log(folder, CONFIGS, is_clean=True, recovery_point=want.end)
        assert ask(log) == want, done
        log.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_every_length_of_an_index(
    logs: list[tuple[Path, Answers]], tmp_path: Path, is_clean: bool
) -> None:
    source, want = logs[0]
    for path in sorted(source.glob("*.index"))[:2] + sorted(source.glob("*.timeindex"))[:2]:
        data = path.read_bytes()
        for size in range(0, len(data), 5):
            folder = tmp_path / f"{path.name}-{size}"
            shutil.copytree(source, folder)
            (folder / path.name).write_bytes(data[:size])
            log = open_log(folder, CONFIGS, is_clean=is_clean, recovery_point=want.end)
            assert ask(log) == want, (path.name, size)
            log.close()
            shutil.rmtree(folder)


def test_an_index_that_is_cut_while_it_is_used(tmp_path: Path) -> None:
    """The mapped file of a sealed segment loses its pages: the log is read instead."""
    log = open_log(tmp_path, {"index.interval.bytes": 0})
    for at in range(2000):
        log.append(batch(b"v", timestamp=T + at))
    log.roll()
    log = reopen(log)
    found = log.offset_for_time(T + 700)
    assert found is not None
    for kind in KINDS[:2]:
        os.truncate(tmp_path / name(0, kind), 0)
    answer = log.read(1900)
    assert answer.region is not None
    assert answer.region.position == 1900 * (log.size_bytes // 2000)
    assert log.offset_for_time(T + 700) == found
    assert log.offset_of_largest_time() is not None
    log.advance_high_watermark(log.log_end)
    assert log.read(5, 100, Isolation.COMMITTED).aborted == ()
    log.close()


def test_time_entries_that_are_wrong_and_in_order(tmp_path: Path) -> None:
    """Nothing in the file looks wrong; only the log can tell."""
    log = open_log(tmp_path, {"index.interval.bytes": 150})
    for at in range(40):
        log.append(batch(b"eleven byte", timestamp=T + 10 * at))
    log.roll()
    log.close()
    path = tmp_path / name(0, ".timeindex")
    entries = list(struct.iter_unpack(">qi", path.read_bytes()))
    assert len(entries) > 10
    for slot in range(len(entries) - 1):
        for time, more in ((-15, 0), (-15, 1), (0, 1), (9, 0)):
            wrong = list(entries)
            wrong[slot] = (entries[slot][0] + time, entries[slot][1] + more)
            path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in wrong))
            log = again(log, is_clean=True, recovery_point=40)
            for target in range(0, 400, 5):
                found = log.offset_for_time(T + target)
                want = -(-target // 10)
                assert (None if found is None else found.offset) == (want if want < 40 else None)
            log.abandon()
