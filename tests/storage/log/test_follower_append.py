"""Append as a follower: offsets and epochs are the leader's, what does not follow is refused (part 4.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import CorruptionError, OffsetOrderError
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import INT32_MAX, Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.partition_log import Watermark
from stratalog.storage.views.log_view import Isolation
from tests.storage.logs import (
    ALL_CODECS,
    SIZE,
    T,
    bases,
    batch,
    crash,
    in_txn,
    log_bytes,
    offsets,
    open_log,
    reopen,
    sent,
    small,
    values,
)


def test_what_the_leader_stored_is_stored_byte_for_byte(tmp_path: Path) -> None:
    log = open_log(
        tmp_path, {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    )
    data = b"".join(
        batch(b"v" * 50, b"w", base_offset=2 * at, leader_epoch=at // 2, codec=codec)
        for at, codec in enumerate(ALL_CODECS)
    )
    result = log.append_as_follower(data)
    assert result is not None
    assert result[:3] == (0, 9, -1)
    assert log_bytes(log) == data
    assert log.epochs == ((0, 0), (1, 4), (2, 8))
    log.close()


def test_gaps_are_taken_and_steps_back_are_not(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(small(0) + small(1))
    log.append_as_follower(small(10))
    assert (log.log_end, offsets(log)) == (11, [0, 1, 10])
    before = log_bytes(log)
    for data in (small(10), small(5), small(0)):
        with pytest.raises(OffsetOrderError, match="ends at 11"):
            log.append_as_follower(data)
    for data in (small(11) + small(11), small(12) + small(11)):
        with pytest.raises(OffsetOrderError, match="follows one that ends"):
            log.append_as_follower(data)
    inside = batch(b"a", b"b", b"c", base_offset=9)
    with pytest.raises(OffsetOrderError):  # it reaches behind the end, and starts before it
        log.append_as_follower(inside)
    assert (log_bytes(log), log.failure) == (before, None)
    log.append_as_follower(small(11))
    log.close()


def test_a_last_batch_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    whole = small(0) + small(1)
    for cut in range(1, SIZE):
        log.restart(0)
        assert log.append_as_follower((whole + small(2))[:-cut]) is not None
        assert log_bytes(log) == whole
    assert log.append_as_follower(small(2)[:-1]) is None
    assert log.append_as_follower(b"") is None
    assert log.log_end == 2
    log.close()


def test_a_damaged_batch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    damaged = bytearray(small(0) + small(1))
    damaged[SIZE + 70] ^= 1
    with pytest.raises(CorruptionError) as caught:
        log.append_as_follower(damaged)
    assert (caught.value.reason, caught.value.position) == ("crc_mismatch", SIZE)
    assert (log.log_end, log.size_bytes) == (0, 0)
    log.close()


def test_batches_of_a_leader_that_we_do_not_follow_yet_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = small(0, epoch=1) + small(1, epoch=2) + small(2, epoch=3) + small(3, epoch=2)
    assert log.append_as_follower(data, epoch_max=2) is not None
    assert (log.log_end, log.epochs) == (2, ((1, 0), (2, 1)))
    assert log.append_as_follower(small(2, epoch=3), epoch_max=2) is None
    assert log.append_as_follower(small(2, epoch=-1), epoch_max=2) is not None
    log.close()


def test_sizes_and_times_are_the_leaders_business(tmp_path: Path) -> None:
    configs = {
        "max.message.bytes": 100,
        "message.timestamp.after.max.ms": 1,
        "cleanup.policy": "compact",
    }
    log = open_log(tmp_path, configs)
    log.append_as_follower(batch(bytes(500), timestamp=T + 10**9))
    assert log.log_end == 1
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_the_old_formats_stay_as_they_are(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(small(0))
    assert log.epochs == ((3, 0),)
    options = MessageOptions(magic=1, codec=codec)
    old = build_messages(
        [Record(b"a", timestamp=T), Record(b"b", timestamp=T)], options, base_offset=1
    )
    log.append_as_follower(old)
    assert log_bytes(log) == small(0) + old
    assert log.log_end == 3
    assert not log.epochs  # they carry none
    # One answer of a leader may hold both.
    mixed = build_messages([Record(b"c")], MessageOptions(magic=0), base_offset=3) + small(4)
    log.append_as_follower(mixed)
    assert log.epochs == ((3, 4),)
    with pytest.raises(OffsetOrderError):
        log.append_as_follower(build_messages([Record(b"d")], options, base_offset=4))
    assert values(log)[:4] == [b"00000000000", b"a", b"b", b"c"]
    log = reopen(log)
    assert (log.log_end, log.epochs) == (5, ((3, 4),))
    log.close()


def test_producers_are_followed_without_question(tmp_path: Path) -> None:
    """The leader has decided: no sequence is wrong, and no epoch too old."""
    log = open_log(tmp_path)
    log.append_as_follower(sent(7, 5, b"a", producer_epoch=3))
    log.append_as_follower(sent(7, 90, b"b", producer_epoch=3, base_offset=1))
    log.append_as_follower(sent(7, 90, b"b", producer_epoch=3, base_offset=2))  # no duplicate
    log.append_as_follower(sent(7, 0, b"c", producer_epoch=1, base_offset=3))
    assert log.log_end == 4
    log.close()


def test_transactions_of_the_leader_are_known_to_the_follower(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(in_txn(1, 0, b"a") + in_txn(2, 0, b"b", base_offset=1))
    marker = build_marker(
        ControlType.ABORT,
        offset=2,
        timestamp=T,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    log.append_as_follower(marker)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    assert log.segments[0].aborted == ((1, 0, 2, 1),)
    log = crash(log, high_watermark=3)
    assert log.last_stable_offset == 1
    assert log.segments[0].aborted == ((1, 0, 2, 1),)
    assert values(log, 0, Isolation.COMMITTED) == []
    log.close()


def test_a_gap_beyond_32_bits_starts_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(small(0, timestamp=T))
    log.append_as_follower(small(INT32_MAX, timestamp=T))
    assert bases(log) == [0]
    log.append_as_follower(small(INT32_MAX + 1, timestamp=T))
    assert bases(log) == [0, INT32_MAX + 1]
    far = 10 * INT32_MAX
    log.append_as_follower(build_messages([Record(b"a")], MessageOptions(magic=1), base_offset=far))
    # Its first offset stands inside, so the name is the lowest from which it can be reached.
    assert bases(log)[-1] == far - INT32_MAX
    assert offsets(log) == [0, INT32_MAX, INT32_MAX + 1, far]
    log = reopen(log)
    assert offsets(log) == [0, INT32_MAX, INT32_MAX + 1, far]
    log.close()


def test_one_append_may_not_span_more_than_a_segment_can(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(OffsetOrderError, match="2147483647"):
        log.append_as_follower(small(5) + small(5 + INT32_MAX + 1))
    assert (log.log_end, log.size_bytes, log.failure) == (0, 0, None)
    log.append_as_follower(small(5) + small(5 + INT32_MAX))
    log.close()


def test_a_follower_that_syncs_shows_what_is_on_the_disk(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.SYNCED)
    log.append_as_follower(small(0))
    assert log.high_watermark == 0
    log.append_as_follower(small(1), sync=True)
    assert (log.high_watermark, log.synced_offset) == (2, 2)
    log.close()
