"""An append of leader epoch -2 was acknowledged, and could not be read back; one above 31 bits was an
OverflowError."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import UsageError
from tests.storage.logs import batch, crash, open_log, sent, values

WRONG = [-2, -(2**31), -(2**31) - 1, 2**31, 2**40]


@pytest.mark.parametrize("epoch", WRONG)
def test_it_is_refused_and_nothing_is_written(tmp_path: Path, epoch: int) -> None:
    log = open_log(tmp_path)
    for known in ([], [batch(b"known")]):
        for data in known:
            log.append(data)
        before = log.size_bytes
        for data in (batch(b"a"), sent(7, 0, b"a"), batch(b"a") * 2):
            own = bytearray(data)
            with pytest.raises(UsageError, match="leader epoch"):
                log.append(own, leader_epoch=epoch)
            assert own == data
        with pytest.raises(UsageError, match="leader epoch"):
            log.append_each([batch(b"a"), batch(b"b")], leader_epoch=epoch)
        assert (log.size_bytes, log.failure) == (before, None)
    log.close()


@pytest.mark.parametrize("epoch", [-1, 0, 2**31 - 1])
def test_the_first_and_the_last_are_epochs(tmp_path: Path, epoch: int) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a"), leader_epoch=epoch)
    log.append_each([batch(b"b"), batch(b"c")], leader_epoch=epoch)
    assert log.epochs == (() if epoch < 0 else ((epoch, 0),))
    log = crash(log)
    assert values(log) == [b"a", b"b", b"c"]
    log.close()
