"""What Kafka 4.3.1 makes of batches that no producer of today sends, seen on a broker: the LogAppendTime bit
on a topic of CreateTime, attributes without a meaning, records whose offsets are not in their batch."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stratalog.errors import InvalidRecordError, InvalidTimestampError
from stratalog.records.columns import decode_records
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    MAX_TIMESTAMP_AT,
    Codec,
)
from tests.inspect.logs import sealed
from tests.storage.logs import T, batch, headers, in_txn, log_bytes, open_log

FAR = T + 10**10


def changed(data: bytes, attributes: int, max_timestamp: int | None = None) -> bytes:
    """With more attributes, and another largest timestamp."""
    out = bytearray(data)
    (known,) = struct.unpack_from(">H", out, ATTRIBUTES_AT)
    struct.pack_into(">H", out, ATTRIBUTES_AT, known | attributes)
    if max_timestamp is not None:
        struct.pack_into(">q", out, MAX_TIMESTAMP_AT, max_timestamp)
    return sealed(bytes(out))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("times", "max_timestamp", "stored"),
    [
        ([T - 10, T - 5], T + 5000, T + 5000),
        ([T - 10, T - 5], T - 5, T - 5),
        ([-1, -1], T, T),
        ([FAR, FAR], T, T),
        ([T, T], -7, -1),
    ],
)
def test_the_header_tells_the_time_of_all_records(
    tmp_path: Path, codec: Codec, times: list[int], max_timestamp: int, stored: int
) -> None:
    log = open_log(tmp_path)
    data = batch(b"a", b"b", timestamp=times, codec=codec)
    log.append(changed(data, APPEND_TIME_MASK, max_timestamp))
    (header,) = headers(log_bytes(log))
    assert (header.attributes, header.max_timestamp) == (codec, stored)
    assert log_bytes(log)[MAX_TIMESTAMP_AT + 8 :] == data[MAX_TIMESTAMP_AT + 8 :]
    log.close()


def test_records_that_are_packed_anew_get_the_time_of_their_header(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"compression.type": "gzip"})
    log.append(changed(batch(b"a", b"b", timestamp=[T - 10, T - 5]), APPEND_TIME_MASK, T + 5000))
    (header,) = headers(log_bytes(log))
    assert (header.attributes, header.base_timestamp) == (Codec.GZIP, T + 5000)
    assert [each.timestamp for each in decode_records(log_bytes(log))] == [T + 5000] * 2
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("max_timestamp", [-1, FAR])
def test_a_header_without_a_time_or_of_the_far_future_is_refused(
    tmp_path: Path, codec: Codec, max_timestamp: int
) -> None:
    log = open_log(tmp_path)
    data = batch(b"a", b"b", timestamp=T, codec=codec)
    with pytest.raises(InvalidTimestampError) as caught:
        log.append(changed(data, APPEND_TIME_MASK, max_timestamp))
    assert [row for row, _ in caught.value.record_errors] == [0, 1]
    assert log.log_end == 0
    log.close()


@pytest.mark.parametrize("unknown", [0x80, 0x200, 0x8000, 0x8280])
def test_attributes_without_a_meaning_go_when_a_batch_is_corrected(
    tmp_path: Path, unknown: int
) -> None:
    right = in_txn(7, 0, b"a", timestamp=T)
    log = open_log(tmp_path / "corrected")
    log.append(changed(right, unknown | 0x40, T - 7))
    assert headers(log_bytes(log))[0].attributes == 0x10 | 0x40
    log.close()
    log = open_log(tmp_path / "kept")
    log.append(changed(right, unknown))
    (attributes,) = struct.unpack_from(">H", log_bytes(log), ATTRIBUTES_AT)
    assert attributes == 0x10 | unknown
    log.close()
    log = open_log(tmp_path / "stamped", {"message.timestamp.type": "LogAppendTime"})
    log.append(changed(right, unknown))
    assert headers(log_bytes(log))[0].attributes == 0x10 | APPEND_TIME_MASK
    log.close()
    log = open_log(tmp_path / "anew", {"compression.type": "gzip"})
    log.append(changed(right, unknown | 0x40))
    assert headers(log_bytes(log))[0].attributes == 0x10 | Codec.GZIP
    log.close()


@pytest.mark.parametrize("deltas", [(5, 5, 5), (1, 2, 3)])
def test_offsets_outside_of_the_batch_are_a_producers_fault(
    tmp_path: Path, deltas: tuple[int, ...]
) -> None:
    """Not damage, for which a segment would have to be restored."""
    data = bytearray(batch(b"a", b"b", b"c"))
    at = BATCH_HEADER_SIZE
    for delta in deltas:
        data[at + 3] = 2 * delta
        at += 1 + data[at] // 2
    log = open_log(tmp_path)
    with pytest.raises(InvalidRecordError, match="outside its batch"):
        log.append(sealed(bytes(data)))
    assert (log.log_end, log.failure) == (0, None)
    log.close()
