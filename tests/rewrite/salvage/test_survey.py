"""What a survey finds in files that are damaged in particular ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.model import Record
from stratalog.records.v07 import build_entries
from stratalog.rewrite.salvage.runs import FileSurvey
from stratalog.rewrite.salvage.steps import SurveyLimits
from stratalog.rewrite.salvage.survey import SEARCH_LIMIT, survey_file
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import open_log_file
from tests.inspect.logs import Unmappable, batch, flipped


def survey(
    path: Path, data: bytes, *, limits: SurveyLimits | None = None, files: FileSystem | None = None
) -> FileSurvey:
    path.write_bytes(data)
    with open_log_file(str(path), files) as log_file:
        return survey_file(log_file, 0, limits or SurveyLimits())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def offsets(found: FileSurvey) -> list[tuple[int, int]]:
    return [(run.first, run.next) for run in found.runs]


def test_a_sound_file_is_one_run(path):
    found = survey(path, batch(0) + batch(3) + batch(6))
    assert offsets(found) == [(0, 9)]
    assert found.damage == []
    assert (found.runs[0].batches, found.runs[0].records) == (3, 9)


def test_an_empty_file_has_nothing(path):
    found = survey(path, b"")
    assert (found.runs, found.damage) == ([], [])


def test_damage_is_exactly_the_damaged_batch(path):
    one, two, three = batch(0), batch(3), batch(6)
    found = survey(path, one + flipped(two, 80) + three)
    (damage,) = found.damage
    assert (damage.start, damage.end) == (len(one), len(one) + len(two))
    assert damage.reason == "crc_mismatch"
    assert offsets(found) == [(0, 3), (6, 9)]


@pytest.mark.parametrize("codec", Codec)
def test_a_compressed_batch_is_decoded(path, codec):
    data = batch(0, codec=codec) + batch(3, codec=codec)
    found = survey(path, data)
    assert (offsets(found), found.runs[0].records) == ([(0, 6)], 6)


def test_what_does_not_decompress_is_damage(path):
    from tests.inspect.logs import sealed

    broken = bytearray(batch(3, codec=Codec.GZIP))
    broken[-9] ^= 1
    found = survey(path, batch(0) + sealed(bytes(broken)) + batch(6))
    assert offsets(found) == [(0, 3), (6, 9)]
    assert [each.reason for each in found.damage] == ["compressed_data"]


def test_batches_hidden_by_a_size_that_ends_at_another_are_found(path):
    """No CRC covers a size: this one says that the batch ends where the third one after it begins."""
    batches = [batch(3 * number, size=20) for number in range(5)]
    size = len(batches[0])
    wrong = bytearray(batches[1])
    wrong[8:12] = (3 * size - 12).to_bytes(4, "big")
    found = survey(path, batches[0] + bytes(wrong) + b"".join(batches[2:]))
    assert offsets(found) == [(0, 3), (6, 15)]


def test_a_batch_inside_a_value_is_not_one_of_the_log(path):
    inner = batch(1000, count=1)
    outer = build_batch([Record(b"x" * 30 + inner + b"y" * 30)], base_offset=3)
    found = survey(path, batch(0) + flipped(outer, 70) + batch(4))
    assert [run.is_inside for run in found.runs] == [False, True, False]


def test_zeros_are_passed_over(path):
    found = survey(path, batch(0) + bytes(5_000_000) + batch(3))
    assert offsets(found) == [(0, 3), (3, 6)]
    (damage,) = found.damage
    assert (damage.reason, damage.size_bytes) == ("zeros", 5_000_000)


def test_a_zero_tail_is_named_as_such(path):
    found = survey(path, batch(0) + bytes(700_000))
    assert [each.reason for each in found.damage] == ["zero_tail"]


def test_a_hole_of_a_terabyte_is_not_read(path):
    """A file that says that it is a terabyte long, with a batch at each end."""
    first, last, far = batch(0), batch(3), 1 << 40
    with path.open("wb") as file:
        file.write(first)
        file.seek(far)
        file.write(last)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    with open_log_file(str(path)) as log_file:
        found = survey_file(log_file)
    assert offsets(found) == [(0, 3), (3, 6)]
    assert [(each.start, each.end) for each in found.damage] == [(len(first), far)]


def test_a_file_that_cannot_be_mapped_is_read(path):
    large = batch(3, count=4000, size=300)  # larger than a window that is read
    data = batch(0) + large + flipped(batch(4003), 70) + bytes(600_000) + batch(4006)
    found = survey(path, data, files=Unmappable())
    assert offsets(found) == [(0, 4003), (4006, 4009)]


def test_a_batch_across_windows_is_found_after_damage(path):
    """Mapped windows have 32 MiB: the batch begins before the end of the first one."""
    filler = b"\x01" * ((32 << 20) - 2000)
    large = batch(3, count=100, size=300)
    found = survey(path, batch(0) + filler + large + batch(103))
    assert offsets(found) == [(0, 3), (3, 106)]


def test_a_batch_above_the_limit_is_damage(path):
    data = batch(0) + batch(3, count=40) + batch(43)
    found = survey(path, data, limits=SurveyLimits(batch_bytes=400))
    assert offsets(found) == [(0, 3), (43, 46)]
    assert [each.reason for each in found.damage] == ["size_too_large"]


def test_a_search_that_costs_too_much_is_given_up(path, monkeypatch):
    monkeypatch.setattr("stratalog.rewrite.salvage.survey._CHECKED_LEAST", 0)
    monkeypatch.setattr("stratalog.rewrite.salvage.survey._CHECKED_FACTOR", 0)
    found = survey(path, batch(0) + flipped(batch(3), 10) + b"\x01" * 50 + batch(6))
    assert offsets(found) == [(0, 3)]
    assert [each.reason for each in found.damage] == [SEARCH_LIMIT]


def test_a_file_that_becomes_shorter_is_an_error(path):
    path.write_bytes(batch(0) + bytes(3_000_000) + batch(3))
    with open_log_file(str(path)) as log_file:
        path.write_bytes(batch(0))
        with pytest.raises(StorageError, match="shorter"):
            survey_file(log_file)


def test_gaps_do_not_make_more_runs_than_there_is_memory_for(path, monkeypatch):
    monkeypatch.setattr("stratalog.rewrite.salvage.runs._GAPS_MAX", 3)
    found = survey(path, b"".join(batch(10 * number) for number in range(9)))
    assert len(found.runs) == 3
    assert found.runs[-1].next == 83
    assert sum(run.batches for run in found.runs) == 9


def test_an_empty_entry_of_0_7_after_damage_is_found_with_the_next_one(tmp_path):
    path = tmp_path / "00000000000000000000.kafka"
    entries = build_entries([b"first", b"second", b"", b"third"])
    damaged = bytearray(entries)
    damaged[len(build_entries([b"first"])) + 12] ^= 1
    found = survey(path, bytes(damaged))
    assert sum(run.batches for run in found.runs) == 3


def test_options_of_a_batch_do_not_matter(path):
    data = build_batch([Record(b"v")], BatchOptions(append_time=5, leader_epoch=9), base_offset=7)
    assert offsets(survey(path, data)) == [(7, 8)]
