"""The golden data is here, unchanged, and its dumps are read right."""

import hashlib
import struct
from collections import Counter

import pytest

from tests.judges.peers.golden import GOLDEN_DIR, GoldenSet, golden_sets

SETS = golden_sets()

UNLISTED = {".gitattributes", "README.md", "SHA256SUMS", "SHA256SUMS-old"}


def each(sets: list[GoldenSet]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("golden", sets, ids=[golden.name for golden in sets])


each_set = each(SETS)
# 0.7 entries have no offset field, and its tool shows neither CRCs nor the records of a wrapper.
each_set_since_0_8 = each([golden for golden in SETS if not golden.is_v07])
each_whole_set_since_0_8 = each([g for g in SETS if not (g.is_v07 or g.damaged)])


def test_every_file_has_the_sum_listed_for_it() -> None:
    listed = {}
    for sums in ("SHA256SUMS", "SHA256SUMS-old"):
        for line in (GOLDEN_DIR / sums).read_text(encoding="utf-8").splitlines():
            digest, name = line.split("  ", 1)
            listed[name] = digest
    present = {
        path.relative_to(GOLDEN_DIR).as_posix(): path
        for path in GOLDEN_DIR.rglob("*")
        if path.is_file()
    }
    assert set(present) - set(listed) == UNLISTED
    assert set(listed) <= set(present)
    for name, digest in listed.items():
        assert hashlib.sha256(present[name].read_bytes()).hexdigest() == digest, name


def test_there_are_sets_of_every_format() -> None:
    kinds = Counter(golden.name.split("-")[0] for golden in SETS)
    assert kinds == {"mixed": 2, "v07": 3, "v0": 8, "v1": 11, "v2": 27}


@each_set
def test_every_segment_is_dumped_and_the_dump_covers_it(golden: GoldenSet) -> None:
    for partition in golden.partitions():
        for segment in partition.segments:
            dump = golden.dump_of(segment)
            assert dump.complete or golden.damaged, dump.name
            assert dump.start_offset == int(segment.stem)
            position = 0
            for batch in dump.batches:
                assert batch.position == position
                position += batch.size


@each_set_since_0_8
def test_every_dumped_batch_has_its_size_magic_and_crc_at_its_position(golden: GoldenSet) -> None:
    for dump in golden.dumps():
        data = dump.path.read_bytes()
        for batch in dump.batches:
            size, magic_2_crc = struct.unpack_from(">8x i 5x I", data, batch.position)
            (old_crc,) = struct.unpack_from(">I", data, batch.position + 12)
            assert 12 + size == batch.size
            assert data[batch.position + 16] == batch.magic
            assert batch.crc in (None, magic_2_crc if batch.magic == 2 else old_crc)


@each_set_since_0_8
def test_every_dumped_batch_shows_as_many_records_as_it_counts(golden: GoldenSet) -> None:
    for dump in golden.dumps():
        for batch in dump.batches:
            # 4.3 does not print the records of a batch whose CRC is wrong.
            if batch.is_valid:
                assert len(batch.records) == batch.count, (dump.name, batch.position)
            assert all(
                batch.base_offset <= record.offset <= batch.last_offset for record in batch.records
            )


@each_whole_set_since_0_8
def test_dumped_records_from_the_log_start_on_are_the_expected_ones(golden: GoldenSet) -> None:
    dumped = [
        (partition.topic, partition.partition, record.offset, record.key_size, record.value_size)
        for partition in golden.partitions()
        for segment in partition.segments
        for batch in golden.dump_batches(segment)
        if not batch.is_control
        for record in batch.records
        if record.offset >= golden.log_start_offset(partition.topic, partition.partition)
    ]
    expected = [
        (row["topic"], row["partition"], row["offset"], _size(row["key"]), _size(row["value"]))
        for row in golden.expected()
    ]
    assert dumped == sorted(expected)


def _size(text: str | None) -> int:
    return -1 if text is None else len(text) // 4 * 3 - text.count("=")
