"""The short way of an append does what the long way does, byte by byte: rolls, indexes, epochs, answers."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from unittest import mock

import pytest

from stratalog.errors import LogFailedError, StorageError
from stratalog.storage.log import appending
from stratalog.storage.partition_log import AppendResult
from stratalog.storage.segment.active import ActiveSegment
from stratalog.testing import ManualClock
from tests.scale import SCALE, fresh
from tests.storage.logs import T, batch, open_log, sent, values

CONFIGS = {
    "internal.segment.bytes": 2000,
    "segment.ms": 1000,
    "index.interval.bytes": 64,
    "segment.index.bytes": 48,
    "segment.jitter.ms": 0,
}


def steps(seed: int) -> list[tuple[bytes, int, int]]:
    """Batches with a leader epoch each, and how far the clock goes before."""
    chosen = random.Random(seed)
    timestamp, epoch, sequence = T, 0, 0
    made = []
    for _ in range(60):
        timestamp += chosen.choice((0, 1, 5, 40, 700, 1001, -30))
        epoch += chosen.choice((0, 0, 0, 0, 0, 0, 0, 1))
        given = [bytes(chosen.randrange(200)) for _ in range(chosen.randint(1, 4))]
        at = chosen.choice((timestamp, timestamp, timestamp, timestamp, -1))
        if chosen.random() < 0.1:
            data = sent(7, sequence, *given, timestamp=at)
            sequence += len(given)
        else:
            data = batch(*given, timestamp=at)
        made.append((data, epoch, chosen.choice((0, 0, 1, 600))))
    return made


def run(folder: Path, seed: int) -> tuple[list[AppendResult], dict[str, bytes], int]:
    clock = ManualClock(T)
    log = open_log(folder, CONFIGS, clock=clock)
    answers = []
    short = 0
    real = appending._append_plain

    def counted(*args: object) -> AppendResult | None:
        nonlocal short
        answer = real(*args)  # type: ignore[arg-type]
        short += answer is not None
        return answer

    with mock.patch.object(appending, "_append_plain", counted):
        for data, epoch, wait_ms in steps(seed):
            clock.advance(wait_ms)
            answers.append(log.append(data, leader_epoch=epoch))
    segments = len(log.segments)
    assert segments > 3
    log.close()
    return answers, {each.name: each.read_bytes() for each in folder.iterdir()}, short


@pytest.mark.scaled
def test_both_ways_leave_the_same_files(tmp_path: Path) -> None:
    taken = 0
    for seed in map(fresh, range(10 * SCALE)):
        short = run(tmp_path / f"short-{seed}", seed)
        with mock.patch.object(ActiveSegment, "place_plain", return_value=-1):
            long = run(tmp_path / f"long-{seed}", seed)
        assert short[:2] == long[:2], f"seed {seed}"
        assert long[2] == 0
        taken += short[2]
    assert taken > 100 * SCALE, "the short way was not taken, and nothing was compared"


def test_bytes_are_not_changed_and_a_bytearray_is_stamped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = batch(b"a")
    kept = bytes(data)
    log.append(data)
    log.append(data)
    assert data == kept
    own = bytearray(data)
    log.append(own)
    assert int.from_bytes(own[:8], "big") == 2
    assert own[8:] == kept[8:12] + (0).to_bytes(4, "big") + kept[16:]
    log.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_on_the_short_way_is_handled_as_on_the_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a"))
    file = log.segments[-1].log
    real = file.write_at  # type: ignore[attr-defined]

    def refuse(position: int, data: bytes) -> None:
        real(position, data[: len(data) // 2])
        raise StorageError("refused", path=file.path, errno=number)

    with monkeypatch.context() as patched:
        patched.setattr(file, "write_at", refuse)
        with pytest.raises(StorageError, match="refused"):
            log.append(batch(b"b"))
    assert log.log_end == 1
    if number == errno.EIO:
        with pytest.raises(LogFailedError):
            log.append(batch(b"c"))
        log.abandon()
        return
    log.append(batch(b"c"))
    assert values(log) == [b"a", b"c"]
    log.close()
