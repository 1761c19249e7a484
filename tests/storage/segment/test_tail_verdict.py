"""Recovery and damage: a torn or nonsense tail is cut and told; what would cost sound records is refused, and
cut only when asked for. Kafka cuts in every case.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from stratalog.errors import DamagedLogError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import Codec, Ending
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment import tail_verdict as damage
from stratalog.storage.segment.tail_verdict import judge_tail
from tests.storage.logs import (
    SIZE,
    T,
    bases,
    batch,
    crash,
    flip,
    name,
    offsets,
    open_log,
    sent,
    small,
    values,
    write_segments,
)


def log_file(folder: Path, base: int = 0) -> Path:
    return folder / name(base, ".log")


def damaged_open(folder: Path, **how: object) -> DamagedLogError:
    with pytest.raises(DamagedLogError) as caught:
        open_log(folder, **how)  # type: ignore[arg-type]
    return caught.value


# --- tails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, SIZE))
def test_a_torn_last_batch_is_cut_at_every_byte(tmp_path: Path, cut: int) -> None:
    write_segments(tmp_path, 0, 5)
    path = log_file(tmp_path, 5)
    path.write_bytes(path.read_bytes()[:-cut])
    log = open_log(tmp_path)
    assert (log.log_end, offsets(log)) == (9, list(range(9)))
    (told,) = log.report.cuts
    assert (told.path, told.position, told.size_bytes) == (str(path), 4 * SIZE, SIZE - cut)
    assert (told.from_offset, log.report.cut_bytes) == (9, SIZE - cut)
    assert path.stat().st_size == 4 * SIZE
    log.append(batch(b"next"))
    log = crash(log)
    assert (log.report.cuts, offsets(log)) == ([], list(range(10)))
    log.close()


@pytest.mark.parametrize(
    "tail",
    [
        bytes(1), bytes(60), bytes(61), bytes(5000), b"\xff" * 300, b"nonsense " * 40,
        struct.pack(">qi", 5, 2**31 - 1) + bytes(100), struct.pack(">qi", 5, -1) + bytes(100),
        struct.pack(">qi", 5, 13) + bytes(100), small(5)[:60] + bytes(4096),
        random.Random(1).randbytes(3000),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_tail_that_is_no_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    log = open_log(tmp_path)
    assert (log.log_end, log.report.cut_bytes) == (5, len(tail))
    assert log.report.cuts[0].kept_as is None
    assert path.stat().st_size == 5 * SIZE
    log.close()


def test_a_batch_whose_blocks_were_lost_is_cut_and_what_stands_behind_it_kept(
    tmp_path: Path,
) -> None:
    """A power cut wrote later blocks and not earlier ones: zeros, with sound batches behind."""
    log = open_log(tmp_path)
    for at in range(6):
        log.append(batch(b"v" * 2000, timestamp=T + at))
    log.abandon()
    path = log_file(tmp_path)
    data = bytearray(path.read_bytes())
    one = len(data) // 6
    data[2 * one + 500 : 2 * one + 1500] = bytes(1000)
    path.write_bytes(data)
    log = open_log(tmp_path)
    assert log.log_end == 2
    (cut,) = log.report.cuts
    assert cut.kept_as is not None
    assert Path(cut.kept_as).read_bytes() == data[2 * one :]
    assert "lost" in cut.detail
    log.close()
    # A file of ours in the folder is nobody's business at the next start.
    log = open_log(tmp_path)
    assert log.report.unknown_files == (Path(cut.kept_as).name,)
    log.close()


def test_a_first_batch_that_is_torn_leaves_an_empty_log(tmp_path: Path) -> None:
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes()[: SIZE - 5])
    log = open_log(tmp_path)
    assert (log.log_end, path.stat().st_size) == (0, 0)
    log.close()


def test_an_empty_last_segment_is_no_damage(tmp_path: Path) -> None:
    write_segments(tmp_path, 0)
    log_file(tmp_path, 5).write_bytes(b"")
    log = open_log(tmp_path)
    assert (bases(log), log.log_end, log.report.cuts) == ([0, 5], 5, [])
    log.append(batch(b"x"))
    log.close()


def test_a_torn_segment_before_an_empty_one_is_cut(tmp_path: Path) -> None:
    """A crash between a roll and the first append to the new segment."""
    write_segments(tmp_path, 0)
    log_file(tmp_path, 5).write_bytes(b"")
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    log = open_log(tmp_path)
    assert (bases(log), log.log_end) == ([0], 4)
    assert log.report.dropped_segments == [5]
    log.append(batch(b"x"))
    assert log.log_end == 5
    log.close()


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [SIZE + 8, SIZE + 11, SIZE + 16, SIZE + 20, SIZE + 40, 2 * SIZE - 1])
def test_damage_with_sound_batches_behind_is_refused(tmp_path: Path, at: int) -> None:
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    flip(path, at, 3)
    kept = path.read_bytes()
    error = damaged_open(tmp_path)
    assert (error.path, error.position) == (str(path), SIZE)
    assert "offset 1" in str(error)
    assert error.advice is not None
    assert path.read_bytes() == kept
    # It can be read up to there by others, and cut when that is wanted.
    log = open_log(tmp_path, on_damage="cut")
    assert (log.log_end, path.stat().st_size) == (1, SIZE)
    (cut,) = log.report.cuts
    assert cut.kept_as is not None
    assert Path(cut.kept_as).read_bytes() == kept[SIZE:]
    log.close()


def test_damage_in_a_segment_that_others_follow_is_refused(tmp_path: Path) -> None:
    """Even a torn end: nobody writes to a segment when the next has begun."""
    write_segments(tmp_path, 0, 5)
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    error = damaged_open(tmp_path)
    assert "from offset 5 on" in str(error)
    log = open_log(tmp_path, on_damage="cut")
    assert (bases(log), log.log_end) == ([0], 4)
    log.close()


@pytest.mark.parametrize("point", [5, 3])
def test_damage_below_the_recovery_point_is_refused(tmp_path: Path, point: int) -> None:
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes()[: 2 * SIZE + 30])
    error = damaged_open(tmp_path, recovery_point=point)
    assert f"recovery point {point}" in str(error)
    assert path.stat().st_size == 2 * SIZE + 30
    log = open_log(tmp_path, recovery_point=2)
    assert log.log_end == 2
    log.close()


def test_a_batch_out_of_order_is_damage(tmp_path: Path) -> None:
    """Its CRC is right, and does not cover the offset."""
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    path.write_bytes(small(0) + small(1) + small(1) + small(3))
    error = damaged_open(tmp_path)
    assert (error.reason, error.position) == ("offset_order", 2 * SIZE)


def test_producers_are_as_the_cut_log_tells(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in range(4):
        log.append(sent(7, at, b"v"))
    log.flush()
    log.close()
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    log = open_log(tmp_path)
    assert [entry.last_sequence for entry in log.producers] == [2]
    assert log.append(sent(7, 2, b"v")).is_duplicate
    assert not log.append(sent(7, 3, b"v")).is_duplicate
    assert not (tmp_path / name(5, ".snapshot")).exists()
    log.close()


def test_damaged_snapshots_are_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in range(6):
        log.append(sent(7, at, b"v"))
        log.roll()
    log.close()
    for is_clean in (True, False):
        for path in sorted(tmp_path.glob("*.snapshot"))[2:]:
            flip(path, 20)
        log = open_log(tmp_path, is_clean=is_clean, recovery_point=6)
        assert [entry.last_sequence for entry in log.producers] == [5]
        assert log.append(sent(7, 5, b"v")).is_duplicate
        log.close()


# --- the judgement -------------------------------------------------------------------------------


def judged(folder: Path, data: bytes, next_offset: int = 0) -> tuple[bool, int | None]:
    path = folder / "data"
    path.write_bytes(data)
    with OsFileSystem().open_readable(str(path)) as file:  # type: ignore[attr-defined]
        verdict = judge_tail(file, WalkEnd(0, Ending.CORRUPT), len(data), next_offset)
    return verdict.may_cut, verdict.sound_position


def test_what_counts_as_sound_behind_damage(tmp_path: Path) -> None:
    torn = small(0)[:50]
    assert judged(tmp_path, torn) == (True, None)
    assert judged(tmp_path, torn + small(1)) == (False, 50)
    assert judged(tmp_path, torn + small(1)[:-1]) == (True, None)
    # What is inside a value is not a batch of this log, unless it could be.
    assert judged(tmp_path, torn + small(1), next_offset=2) == (True, None)
    assert judged(tmp_path, torn + bytes(64) + small(1)) == (True, 114)
    broken = bytearray(small(0) + small(1))
    broken[70] ^= 1
    assert judged(tmp_path, bytes(broken)) == (False, SIZE)


@pytest.mark.parametrize("read_bytes", [64, 65, 100, 256])
def test_a_sound_batch_is_found_wherever_a_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(damage, "_READ_BYTES", read_bytes)
    for size in range(1, 300, 7):
        nonsense = random.Random(size).randbytes(size).replace(b"\0", b"x")
        assert judged(tmp_path, nonsense + small(1)) == (False, size)
        assert judged(tmp_path, nonsense) == (True, None)
        zeros = nonsense + bytes(64)
        assert judged(tmp_path, zeros + b"x" + small(1)) == (True, len(zeros) + 1)


def test_more_than_can_be_checked_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "_CHECKED_MAX", 1 << 16)
    looks_right = (struct.pack(">qi", 5, 4000) + bytes(4) + b"\2" + bytes(44)) * 200
    assert judged(tmp_path, looks_right) == (False, None)


# --- what was cut once, and must not be ----------------------------------------------------------


def test_a_sound_batch_far_behind_the_damage_is_found(tmp_path: Path) -> None:
    """Only the first 4 MiB were searched: a larger batch with one flipped bit took all behind it."""
    large = batch(random.Random(1).randbytes(5 << 20), base_offset=0)
    log_file(tmp_path).write_bytes(large + batch(b"v", base_offset=1))
    flip(log_file(tmp_path), 100_000)
    error = damaged_open(tmp_path)
    assert (error.reason, error.position) == ("crc_mismatch", 0)
    assert f"from byte {len(large)}" in error.detail


@pytest.mark.parametrize("bit", range(32))
def test_a_last_batch_with_a_flipped_size_is_not_cut(tmp_path: Path, bit: int) -> None:
    """No CRC covers the size: the batch is whole, and is not a torn one."""
    write_segments(tmp_path, 0)
    flip(log_file(tmp_path), 4 * SIZE + 8 + bit // 8, bit % 8)
    before = log_file(tmp_path).read_bytes()
    error = damaged_open(tmp_path)
    assert error.position == 4 * SIZE
    assert "offset 4 was expected; its bytes match their CRC" in error.detail
    assert log_file(tmp_path).read_bytes() == before


def test_a_batch_that_was_written_whole_is_not_cut_for_what_it_says(tmp_path: Path) -> None:
    """A codec that nobody knows yet: the CRC is right, and Kafka's recovery would keep it."""
    odd = bytearray(small(5))
    odd[22] |= 7
    odd[17:21] = kernel.crc32c(bytes(odd[21:])).to_bytes(4, "big")
    write_segments(tmp_path, 0)
    path = log_file(tmp_path)
    path.write_bytes(path.read_bytes() + odd)
    error = damaged_open(tmp_path)
    assert error.reason == "unknown_codec"
    assert "its bytes match their CRC" in error.detail


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_flipped_bit_of_the_old_formats_is_found_or_harmless(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    """Sound messages behind a damaged one were cut: only batches of the present format were searched for."""
    options = MessageOptions(magic=magic, codec=codec)
    parts = [
        build_messages([Record(b"value %d" % at, b"k", T + at)], options, base_offset=at)
        for at in range(4)
    ]
    data = b"".join(parts)
    last = len(data) - len(parts[-1])
    refused = 0
    for position in range(len(data)):
        for bit in (0, 1, 4, 7):
            log_file(tmp_path).write_bytes(data)
            flip(log_file(tmp_path), position, bit)
            try:
                log = open_log(tmp_path)
            except DamagedLogError:
                refused += 1
                assert len(log_file(tmp_path).read_bytes()) == len(data)
                continue
            for cut in log.report.cuts:
                assert (cut.position, cut.size_bytes) == (last, len(parts[-1])), (position, bit)
            log.abandon()
            for path in tmp_path.iterdir():
                path.unlink()
    assert refused >= 4 * last * 0.9


def test_every_cut_of_a_log_recovers_to_a_prefix(tmp_path: Path) -> None:
    """Small batches of several codecs, cut anywhere: what is left is what stood before, whole."""
    source = open_log(tmp_path / "source")
    ends = [0]
    for at in range(8):
        source.append(batch(b"value %d " % at * (at + 1), timestamp=T + at, codec=at % 5))
        ends.append(source.size_bytes)
    source.close()
    data = log_file(tmp_path / "source").read_bytes()
    for size in range(0, len(data), 7):
        folder = tmp_path / "cut"
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        log_file(folder).write_bytes(data[:size])
        log: PartitionLog = open_log(folder)
        whole = max(number for number, end in enumerate(ends) if end <= size)
        assert values(log) == [b"value %d " % at * (at + 1) for at in range(whole)]
        log.close()
