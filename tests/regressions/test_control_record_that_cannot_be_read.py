"""A control batch whose record has no key, or too short a key or value, was an AssertionError."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import InvalidRecordError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.storage.producers.states import Origin
from tests.storage.logs import T, batch, open_log

COMMIT = b"\0\0\0\1"


def control(key: bytes | None, value: bytes | None) -> bytes:
    options = BatchOptions(
        is_control=True, is_transactional=True, producer_id=5, producer_epoch=0, leader_epoch=0
    )
    return build_batch([Record(value, key, T)], options, base_offset=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"x"), (b"\0\0", b"x"), (b"\xff\xff\0\1", b"x"), (COMMIT, b""), (COMMIT, None)],
)
def test_it_is_refused_with_a_word_for_it(
    tmp_path: Path, key: bytes | None, value: bytes | None
) -> None:
    log = open_log(tmp_path)
    with pytest.raises(InvalidRecordError, match="control record at offset 0"):
        log.append_as_follower(control(key, value))
    with pytest.raises(InvalidRecordError, match="control record at offset 0"):
        log.append(control(key, value), origin=Origin.COORDINATOR)
    assert (log.log_end, log.size_bytes, log.failure, log.producers) == (0, 0, None, [])
    log.append_as_follower(batch(b"a", leader_epoch=0))
    log.close()


def test_one_of_an_unknown_type_is_carried_through(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.append_as_follower(control(b"\0\0\0\7", None)) is not None
    log.close()
