"""The first record of a time in a batch: the same leaf for open logs and for files."""

from __future__ import annotations

import pytest

from stratalog.errors import CorruptionError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.segment.batch_at import TimedOffset, first_of_time
from stratalog.storage.segment.find import BatchPlace

TIMES = (100, 300, 200, 300)
AT = 4096  # where the batch lies in its file


def records() -> list[Record]:
    return [Record(offset=10 + n, timestamp=time, value=b"v") for n, time in enumerate(TIMES)]


def place_of(data: bytes, base_offset: int = 10, last_offset: int = 13) -> BatchPlace:
    return BatchPlace(AT, len(data), base_offset, last_offset, max(TIMES))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_first_record_that_reaches_the_time_from_the_start_on(codec: Codec) -> None:
    data = build_batch(records(), BatchOptions(codec=codec, leader_epoch=7))
    place = place_of(data)
    assert first_of_time(data, place, 0, 0) == TimedOffset(10, 100, 7)
    assert first_of_time(data, place, 101, 0) == TimedOffset(11, 300, 7)
    assert first_of_time(data, place, 101, 12) == TimedOffset(12, 200, 7)
    assert first_of_time(data, place, 201, 12) == TimedOffset(13, 300, 7)
    assert first_of_time(data, place, 301, 0) is None


def test_append_time_is_that_of_every_record() -> None:
    data = build_batch(records(), BatchOptions(append_time=300))
    assert first_of_time(data, place_of(data), 250, 12) == TimedOffset(12, 300, -1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_the_old_format(codec: Codec) -> None:
    data = build_messages(records(), MessageOptions(magic=1, codec=codec))
    place = place_of(data, base_offset=-1)
    assert first_of_time(data, place, 101, 0) == TimedOffset(11, 300, -1)


def test_damaged_records_are_an_error_at_the_position_of_the_batch() -> None:
    data = bytearray(build_batch(records(), BatchOptions(codec=Codec.ZSTD)))
    data[70] ^= 0xFF
    with pytest.raises(CorruptionError) as raised:
        first_of_time(bytes(data), place_of(bytes(data)), 101, 0)
    assert raised.value.position == AT
