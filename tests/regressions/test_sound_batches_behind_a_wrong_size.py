"""One flipped bit in the size of a batch in the middle of the last segment: it seemed to be the last one, cut
off, and all readers ended there as at the torn tail of a writer that died. Every sound batch behind it was
hidden: no error from ``scan``, exit 0 from the commands, "what stands before it is whole" from ``verify``.

Found by a review of what readers and recovery say of the same bytes: recovery called it damage."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.inspect.file.count import count_file
from stratalog.inspect.partition.ends import EndsCache, partition_ends
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.inspect.verify import verify_file
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import Selection
from stratalog.records.layout import Check, Column, Ending
from stratalog.records.model import Record
from stratalog.storage.segment import tail_verdict as damage
from stratalog.storage.segment.torn_tail import OversizedBatchEnd
from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment

BATCHES = 200
WRONG = 100  # the batch whose size is wrong
MEBIBYTE_BIT = (9, 4)  # of the size: a batch that is one mebibyte longer


def damaged(folder: Path, at: int = MEBIBYTE_BIT[0], bit: int = MEBIBYTE_BIT[1]) -> str:
    """A log of one segment and one record a batch; of one batch, a byte of its head is changed."""
    batches = [batch(number, 1) for number in range(BATCHES)]
    batches[WRONG] = flipped(batches[WRONG], at, bit)
    return segment(folder, 0, b"".join(batches))


def source_of(path: str) -> PartitionSource:
    (source,) = find_sources(str(Path(path).parent)).partitions
    return source


def offsets_until_damage(paths: str, **options: object) -> tuple[list[int], CorruptionError]:
    """What a scan gives before its error; fails where there is none."""
    found: list[int] = []
    batches = iter(stratalog.scan(paths, columns=["offset"], **options))  # type: ignore[arg-type]
    with pytest.raises(CorruptionError) as told:
        found.extend(offset for each in batches for offset in each.column(0).to_pylist())
    return found, told.value


@pytest.mark.parametrize("views", [False, True])
def test_scan_tells_after_what_stands_before_it(tmp_path: Path, views: bool) -> None:
    path = damaged(tmp_path)
    place = WRONG * len(batch(0, 1))
    found, error = offsets_until_damage(str(tmp_path / "orders-0"), views=views)
    assert found == list(range(WRONG))
    assert (error.path, error.position) == (path, place)
    assert "its bytes match their CRC" in str(error)
    assert "restore this segment" in str(error)
    assert "a writer died here" not in str(error)


def test_a_batch_that_is_damaged_in_its_records_too(tmp_path: Path) -> None:
    """Then it cannot be recognized by its CRC, but those behind it are."""
    path = Path(damaged(tmp_path))
    size = len(batch(0, 1))
    path.write_bytes(flipped(path.read_bytes(), WRONG * size + size - 2))
    found, error = offsets_until_damage(str(path))
    assert found == list(range(WRONG))
    assert f"intact batches follow from byte {(WRONG + 1) * size}" in str(error)


@pytest.mark.parametrize("bit", range(32))
def test_no_bit_of_a_size_hides_what_follows(tmp_path: Path, bit: int) -> None:
    """Whatever the walk makes of it: cut off, too large, below zero, or a shorter batch and nonsense."""
    path = damaged(tmp_path, 8 + bit // 8, bit % 8)
    found, _ = offsets_until_damage(path)
    assert found == list(range(WRONG))
    assert verify_file(path).status == "damaged"
    source = source_of(path)
    ends = partition_ends(source)
    if ends.damage is None:  # then the end is behind it, and who reads will meet it
        assert ends.end == BATCHES
        selection = Selection(columns=Column.OFFSET, check=Check.CRC | Check.ORDER)
        with pytest.raises(CorruptionError):
            list(RangeReader(selection).read(plan_range(source)))


def test_commands_say_damage_and_exit_with_one(tmp_path: Path) -> None:
    damaged(tmp_path)
    folder = tmp_path / "orders-0"
    for command in (("cat",), ("count",), ("ls",), ("verify",), ("verify", "--deep")):
        done = run(*command, folder)
        assert done.code == 1, command
    assert "at byte" in run("count", folder).err
    (row,) = run("ls", folder).rows()
    assert (row["status"], row["records"], row["end_offset"]) == ("damaged", WRONG, WRONG)
    (row,) = run("verify", folder).rows()
    assert row["status"] == "damaged"
    (finding,) = row["findings"]
    assert finding["severity"] == "damage"
    assert finding["position"] == WRONG * len(batch(0, 1))
    assert "were not checked" in finding["detail"]
    assert run("count", "--offsets", "50:", folder).code == 1


def test_a_file_of_any_name(tmp_path: Path) -> None:
    path = Path(damaged(tmp_path)).rename(tmp_path / "copy.bin")
    found, _ = offsets_until_damage(str(path))
    assert found == list(range(WRONG))
    assert isinstance(count_file(str(path)).end.pause, OversizedBatchEnd)


def test_a_time_behind_it_is_not_said_to_be_missing(tmp_path: Path) -> None:
    source = source_of(damaged(tmp_path))
    assert offset_for_time(source, 1000) == 0
    with pytest.raises(CorruptionError, match="beyond the end of the file"):
        offset_for_time(source, 2000)


def test_damage_that_comes_behind_a_plan(tmp_path: Path) -> None:
    """A range was planned, then the size flips: neither lost nor cut, but damaged."""
    path = Path(segment(tmp_path, 0, b"".join(batch(number, 1) for number in range(BATCHES))))
    planned = plan_range(source_of(str(path)))
    damaged(tmp_path)
    reader = RangeReader(Selection(columns=Column.OFFSET))
    rows: list[int] = []
    with pytest.raises(CorruptionError, match="beyond the end of the file"):
        rows.extend(taken.rows for _, taken in reader.read(planned))
    assert (sum(rows), reader.vanished) == (WRONG, [])


def test_a_torn_tail_stays_one(tmp_path: Path) -> None:
    """Whatever part of its last batch a writer came to write: no error, and never damage."""
    whole = b"".join(batch(3 * number) for number in range(5))
    last = batch(15, 4, size=300)
    for size in range(1, len(last)):
        path = segment(tmp_path, 0, whole + last[:size])
        assert stratalog.scan(path).to_table().num_rows == 15
        assert count_file(path).end.pause.ending == Ending.INCOMPLETE
        ends = partition_ends(source_of(path))
        assert (ends.end, ends.damage) == (15, None)
        if size % 50 == 0:
            assert verify_file(path).status == "torn"
    assert run("cat", path).code == 0


def half_of_one_that_carries_a_batch() -> tuple[bytes, bytes]:
    """A batch in whose value lies another: its half looks as if a sound one followed it."""
    value = batch(2, 1) + bytes(range(1, 200))
    whole = build_batch([Record(value, None, 1000)], BatchOptions(), base_offset=1)
    half = len(whole) - 100
    return whole[:half], whole[half:]


def test_a_writer_that_finishes_the_batch_meanwhile(tmp_path: Path, monkeypatch) -> None:
    half, rest = half_of_one_that_carries_a_batch()
    path = Path(segment(tmp_path, 0, batch(0, 1) + half))
    judge = damage.judge_tail

    def judged_while_written(*arguments):
        verdict = judge(*arguments)
        assert verdict.may_lose
        path.write_bytes(path.read_bytes() + rest)
        return verdict

    monkeypatch.setattr(damage, "judge_tail", judged_while_written)
    assert stratalog.scan(str(path)).to_table().num_rows == 1
    monkeypatch.undo()
    assert stratalog.scan(str(path)).to_table().num_rows == 2


@pytest.mark.parametrize("size", [0, 30])
def test_an_owner_that_cuts_the_tail_meanwhile(tmp_path: Path, monkeypatch, size: int) -> None:
    half, _ = half_of_one_that_carries_a_batch()
    path = Path(segment(tmp_path, 0, batch(0, 1) + half))
    judge = damage.judge_tail

    def judged_while_cut(*arguments):
        verdict = judge(*arguments)
        assert verdict.may_lose
        path.write_bytes(batch(0, 1) + half[:size])
        return verdict

    monkeypatch.setattr(damage, "judge_tail", judged_while_cut)
    assert stratalog.scan(str(path)).to_table().num_rows == 1
    monkeypatch.undo()
    assert stratalog.scan(str(path)).to_table().num_rows == 1


@pytest.mark.parametrize("before", [0, 3])
def test_who_asks_again_and_again_does_not_search_again(
    tmp_path: Path, monkeypatch, before: int
) -> None:
    whole, last = b"".join(batch(number, 1) for number in range(before)), batch(before, 1)
    path = Path(segment(tmp_path, 0, whole + last[:40]))
    searched: list[int] = []
    judge = damage.judge_tail

    def counted(file, pause, size, base):
        searched.append(size)
        return judge(file, pause, size, base)

    monkeypatch.setattr(damage, "judge_tail", counted)
    cache = EndsCache()
    for _ in range(5):
        ends = cache.ends_of(source_of(str(path)))
        assert (ends.end, ends.damage) == (before, None)
    assert len(searched) == 1
    path.write_bytes(whole + last[:50])
    for _ in range(5):
        assert cache.ends_of(source_of(str(path))).end == before
    assert len(searched) == 2
    path.write_bytes(whole + last)
    assert cache.ends_of(source_of(str(path))).end == before + 1
    assert len(searched) == 2


def test_a_log_that_goes_on_behind_a_wrong_size_is_found_out(tmp_path: Path) -> None:
    """Its writer wrote the wrong size: first it looks torn, until the next batch is there."""
    wrong = flipped(batch(1, 1), *MEBIBYTE_BIT)
    broken = flipped(wrong, len(wrong) - 2)  # nor does its CRC tell
    path = Path(segment(tmp_path, 0, batch(0, 1) + broken))
    cache = EndsCache()
    assert cache.ends_of(source_of(str(path))).damage is None
    path.write_bytes(path.read_bytes() + batch(2, 1))
    for _ in range(2):
        ends = cache.ends_of(source_of(str(path)))
        assert ends.end == 1
        assert ends.damage is not None
        assert ends.damage.path == str(path)
