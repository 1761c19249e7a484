"""One append of several batches: where one had to be made anew (another codec, a gap), those behind it were
never looked at. A client could so write control batches, and one append could fail the log for everybody."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import BatchTooLargeError, InvalidRecordError
from stratalog.records.builder import build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import INT32_MAX, LAST_OFFSET_DELTA_AT, Codec
from stratalog.records.model import Record
from stratalog.storage.producers.states import Origin
from tests.inspect.logs import sealed
from tests.storage.logs import (
    T,
    batch,
    crash,
    headers,
    in_txn,
    log_bytes,
    open_log,
    values,
)


def marker() -> bytes:
    return build_marker(
        ControlType.ABORT, offset=0, timestamp=T, producer_id=7, producer_epoch=0, coordinator_epoch=3
    )  # fmt: skip


def with_delta(delta: int) -> bytes:
    data = bytearray(batch(b"x", b"y"))
    struct.pack_into(">i", data, LAST_OFFSET_DELTA_AT, delta)
    return sealed(bytes(data))


BEHIND: dict[str, tuple[type[InvalidRecordError], str, Callable[[], bytes]]] = {
    "control": (InvalidRecordError, "control batches", marker),
    "more offsets than records": (InvalidRecordError, "delta 9", lambda: with_delta(9)),
    "all offsets of a segment": (
        InvalidRecordError, f"delta {INT32_MAX}", lambda: with_delta(INT32_MAX),
    ),
    "no sequence": (
        InvalidRecordError, "numbers its batches",
        lambda: batch(b"z", producer_id=9, producer_epoch=0),
    ),
    "base offset": (InvalidRecordError, "counts from 0", lambda: batch(b"b", base_offset=77)),
    "too large": (BatchTooLargeError, "max.message.bytes=1000", lambda: batch(b"q" * 5000)),
}  # fmt: skip


@pytest.mark.parametrize("case", BEHIND)
@pytest.mark.parametrize("target", ["gzip", "uncompressed"])
def test_every_batch_is_looked_at_before_one_is_made_anew(
    tmp_path: Path, case: str, target: str
) -> None:
    kind, match, build = BEHIND[case]
    log = open_log(tmp_path, {"compression.type": target, "max.message.bytes": 1000})
    log.append(batch(b"before"))
    first = batch(b"a" * 100, codec=Codec.NONE if target == "gzip" else Codec.GZIP)
    before = log_bytes(log)
    with pytest.raises(kind, match=match):
        log.append(first + build())
    assert (log_bytes(log), log.failure) == (before, None)
    log.append(batch(b"after"))
    log = crash(log)
    assert values(log) == [b"before", b"after"]
    log.close()


def test_a_gap_in_front_does_not_hide_what_is_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"max.message.bytes": 1000})
    records = [Record(b"%d" % at, timestamp=T, offset=2 * at) for at in range(3)]
    data = build_batch(records) + batch(b"q" * 5000)
    with pytest.raises(BatchTooLargeError):
        log.append(data, origin=Origin.COORDINATOR)
    assert log.log_end == 0
    log.append(build_batch(records) + batch(b"q"), origin=Origin.COORDINATOR)
    assert values(log) == [b"0", b"1", b"2", b"q"]
    log.close()


def test_a_client_cannot_end_the_transaction_of_another(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"compression.type": "gzip"}, watermark="written")
    log.append(in_txn(7, 0, b"open"))
    with pytest.raises(InvalidRecordError, match="control"):
        log.append(batch(b"a") + marker())
    assert (log.last_stable_offset, log.segments[-1].aborted) == (0, ())
    log.close()


def test_an_append_that_no_segment_can_hold_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """Coordinators may leave offsets out: theirs were only counted when they were in the file."""
    log = open_log(tmp_path)
    log.append(batch(b"before"))
    before = log_bytes(log)
    with pytest.raises(InvalidRecordError, match="a segment spans"):
        log.append(batch(b"a") + with_delta(INT32_MAX), origin=Origin.COORDINATOR)
    assert (log_bytes(log), log.failure, log.log_end) == (before, None, 1)
    log.append(with_delta(INT32_MAX), origin=Origin.COORDINATOR)
    assert log.log_end == INT32_MAX + 2
    log = crash(log)
    assert values(log) == [b"before", b"x", b"y"]
    log.close()


def test_each_batch_keeps_its_own_largest_time_when_all_are_made_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"compression.type": "zstd"})
    log.append(
        batch(b"a", b"b", timestamp=[T + 9, T], codec=Codec.ZSTD)
        + batch(b"c", timestamp=T + 4)
        + batch(b"d", timestamp=-7)
    )
    found = headers(log_bytes(log))
    assert [(each.codec, each.max_timestamp) for each in found] == [
        (Codec.ZSTD, T + 9),
        (Codec.ZSTD, T + 4),
        (Codec.ZSTD, -1),
    ]
    log.close()
