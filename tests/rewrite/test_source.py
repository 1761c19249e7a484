"""Sealed segments are read whole: damage is an error that names it, and the log stays as it was."""

from __future__ import annotations

import pytest

from stratalog.errors import CorruptionError, StratalogError
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_log
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.rewriter import rewrite_group, sources_of
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import MemoryFileSystem
from tests.rewrite.compact.workloads import batches_of, new_disk, open_log
from tests.rewrite.identity import Identity
from tests.scale import sized
from tests.storage.logs import batch

CONFIG = LogConfig.of(
    {"internal.segment.bytes": 300, "index.interval.bytes": 0, "segment.index.bytes": 1000}
)


def filled(disk: MemoryFileSystem, count: int = 15) -> PartitionLog:
    log = open_log(disk, CONFIG)
    for number in range(count):
        log.append(batch(b"value", key=b"%d" % (number % 4)))
    assert len(log.segments) >= 4
    return log


def contents_of(disk: MemoryFileSystem) -> dict[str, bytes]:
    return {path: disk.read_bytes(path) for path in disk.paths()}


def clean(log: PartitionLog, limits: RewriteLimits | None = None) -> None:
    now_ms = log.clock.now_ms()
    checkpoint = UnstoredCheckpoint(log, now_ms=now_ms)
    clean_log(log, checkpoint, CleanerSettings(1 << 12), limits or RewriteLimits(), now_ms=now_ms)


def test_an_identity_copies_every_byte() -> None:
    disk = new_disk()
    log = filled(disk)
    before = batches_of(log)
    done: list[int] = []
    old, end = log.segments[0:3], log.segments[3].base_offset
    with log.rewriting():
        result = rewrite_group(
            log, sources_of(log.view, old), Identity(), RewriteLimits(progress=done.append)
        )
    assert sum(done) == result.old_bytes == result.new_bytes
    assert result.records == sum(len(b.records) for b in before if b.base_offset < end)
    assert batches_of(log) == before
    assert [segment.base_offset for segment in log.segments[:2]] == [0, end]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_segment_is_named_and_the_log_is_as_it_was(number: int) -> None:
    """Every byte of a segment in turn: whatever it is of, nothing is copied or left out unseen."""
    sound = new_disk()
    filled(sound).close()
    paths = sorted(path for path in sound.paths() if path.endswith(".log"))
    size = len(sound.read_bytes(paths[number]))
    for position in range(number % 7, size, sized(7, 1)):
        # The leader epoch is covered by nothing, and no rewrite looks at it.
        if 12 <= position % 74 < 16:
            continue
        disk = sound.fork()
        log = open_log(disk, CONFIG, is_clean=True)
        byte = sound.read_bytes(paths[number])[position] ^ 0x40
        disk.open_writable(paths[number]).write_at(position, bytes([byte]))
        before = contents_of(disk)
        with pytest.raises(CorruptionError) as caught:
            clean(log)
        assert caught.value.path == paths[number], position
        assert contents_of(disk) == before
        assert log.failure is None


def test_a_segment_that_was_cut_off_is_not_rewritten() -> None:
    disk = new_disk()
    log = filled(disk)
    path = log.segments[1].path(FileKind.LOG)
    size = len(disk.read_bytes(path))
    disk.open_writable(path).truncate(size - 10)
    before = contents_of(disk)
    with pytest.raises(StratalogError):
        clean(log)
    assert contents_of(disk) == before


def test_a_segment_that_is_gone_stops_a_rewrite() -> None:
    disk = new_disk()
    log = filled(disk)
    path = log.segments[1].path(FileKind.LOG)
    disk.rename(path, path + ".deleted")
    with pytest.raises(RewriteStoppedError, match="deleted before it could be rewritten"):
        clean(log)
    assert not [each for each in disk.paths() if each.endswith(".cleaned")]


def test_a_group_that_is_deleted_while_it_is_rewritten_stops_it() -> None:
    disk = new_disk()
    log = filled(disk)

    def delete(*_: object) -> None:
        log.advance_start(log.segments[2].base_offset)
        assert log.retain().deletions

    sources = sources_of(log.view, log.segments[0:2])
    with log.rewriting(), pytest.raises(RewriteStoppedError, match="were deleted while"):
        rewrite_group(log, sources, Identity(), RewriteLimits(), before_swap=delete)
    assert not [each for each in disk.paths() if each.endswith(".cleaned")]
    assert log.failure is None
