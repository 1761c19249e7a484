"""``onDamage=skip``: whatever is left out is logged in the same words, by a task or by the driver."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("pyspark")

from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.read.batch_reader import BatchReader
from stratalog.spark.read.stream_reader import StreamReader
from tests.inspect.logs import batch, flipped, segment

SIZE = len(batch(0))


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "stratalog.spark")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "stratalog.spark"]


def log(folder, wrong, at, bit, count=6):
    made = [batch(3 * number) for number in range(count)]
    made[wrong] = flipped(made[wrong], at, bit)
    return segment(folder, 0, b"".join(made))


def options_of(folder, *, is_stream=False, **more):
    given = {"path": str(folder), "onDamage": "skip", "subscribe": "orders", **more}
    return ReadOptions.of(given, is_stream=is_stream)


def read(reader, partitions):
    rows = [batch for each in partitions for batch in reader.read(each)]
    return sorted(offset for batch in rows for offset in batch["offset"].to_pylist())


def line(path, wrong, detail, resume):
    return (
        f"orders-0: left out: {path} at byte {wrong * SIZE}: {detail}; {SIZE} bytes left out, from offset "
        f"{3 * wrong} on; {resume}"
    )


CRC = "the bytes do not match their CRC (crc_mismatch)"
RAISED = (
    "the batch says that it begins at offset 70, and lies between batches that leave room for the offsets "
    "from 6 up to 9 (offset_order)"
)


@pytest.mark.parametrize(
    ("wrong", "at", "bit", "detail", "resume"),
    [
        (2, 80, 4, CRC, "reading can resume at offset 9"),
        (5, 80, 4, CRC, "nothing intact follows"),
        (2, 7, 6, RAISED, "reading can resume at offset 9"),
    ],
    ids=["in the middle", "the last one", "a raised offset"],
)
def test_damage_is_logged_once(tmp_path, warned, wrong, at, bit, detail, resume):
    path = log(tmp_path, wrong, at, bit)
    reader = BatchReader(options_of(tmp_path), ("offset",))
    assert read(reader, reader.partitions()) == [n for n in range(18) if n // 3 != wrong]
    assert warned() == [line(path, wrong, detail, resume)]


def test_stream_logs_a_damaged_last_batch_once(tmp_path, warned):
    path = log(tmp_path, 5, 80, 4)
    options = options_of(tmp_path, is_stream=True, startingOffsets="earliest")
    reader = StreamReader(options, ("offset",))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    for _ in range(2):
        assert read(reader, reader.partitions(start, end)) == list(range(15))
    assert warned() == [line(path, 5, CRC, "nothing intact follows")]


def test_read_that_ends_before_the_damage_logs_nothing(tmp_path, warned):
    log(tmp_path, 5, 80, 4)
    options = options_of(tmp_path, endingOffsets='{"orders": {"0": 9}}')
    reader = BatchReader(options, ("offset",))
    assert read(reader, reader.partitions()) == list(range(9))
    assert warned() == []


def test_stream_that_is_limited_by_offsets_passes_a_raised_offset(tmp_path):
    """Before, the raised offset passed for the end of the log, and the stream crept up to it."""
    log(tmp_path, 4, 2, 0)  # raised by 2 ** 40
    options = options_of(
        tmp_path, is_stream=True, startingOffsets="earliest", maxOffsetsPerTrigger="6"
    )
    reader = StreamReader(options, ("offset",))
    start, found = reader.initialOffset(), []
    for _ in range(4):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end != start:
            found += read(reader, reader.partitions(start, end))
        start = end
    assert found == [*range(12), *range(15, 18)]
    assert start["orders"] == {"0": 18}
