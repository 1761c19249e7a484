"""The power is cut at every step of a swap of segments in an open log, and again in the recovery after it:
the log has the old segments or the new ones, in every state that a disk may be left in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stratalog.errors import StorageError
from stratalog.records.model import BatchHeader
from stratalog.storage.names import SEGMENT_KINDS
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.replace.swap import swap_segments
from stratalog.storage.views.read_only import open_view
from stratalog.testing import Call, Explorer, Facts, Fault, FaultyFileSystem, MemoryFileSystem
from tests.crash.driver import CONFIG, FOLDER
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import headers, offsets, sent
from tests.storage.replace.rewrites import (
    Keep,
    cleaned_path,
    even,
    everything,
    nothing,
    rewrite,
)

pytestmark = pytest.mark.scaled

COUNT = 30


def disk() -> MemoryFileSystem:
    """A disk with a log of an idempotent producer, closed in order."""
    made = MemoryFileSystem(folders=[FOLDER])
    log = open_log(made)
    for number in range(COUNT):
        log.append(sent(7, number, b"%03d" % number))
    log.close()
    assert len(log.segments) >= 6
    made.sync_all()
    return made


def open_log(disk: MemoryFileSystem, **how: Any) -> PartitionLog:
    how = {"file_system": disk, **how}
    return PartitionLog.open(FOLDER, CONFIG, clock=disk.clock, **how)


Step = Callable[[MemoryFileSystem, Facts[list[int]]], None]


def explored(swap: Step, load: Step, *, seed: int) -> Explorer[list[int]]:
    """Cut the power at every step of a swap, and of the loads after it."""
    explorer = Explorer(
        swap,
        load,
        seed=fresh(seed),
        states_per_point=sized(3, 6 * SCALE),
        depth=2,
        nested_points=sized(1, 3),
        nested_states=1,
        start=disk,
    ).run()
    assert explorer.points > 20
    return explorer


def lowest(header: BatchHeader) -> bool:
    """Only records of the first old segment: the swap must cover segments of which nothing is kept."""
    return header.base_offset % 5 == 0 and header.base_offset < 10


#: What is kept, and how many segments become one or, with a second base offset, two.
REWRITES: dict[str, tuple[Keep, int, bool]] = {
    "all-merged": (everything, 3, False),
    "all-in-two": (everything, 3, True),
    "one-for-one": (even, 1, False),
    "half-merged": (even, 3, False),
    "half-in-two": (even, 3, True),
    "only-the-lowest": (lowest, 3, False),
    "none": (nothing, 2, False),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_swap_is_safe_at_every_step(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    keep, count, in_two = REWRITES[name]
    before = list(range(COUNT))
    layout = open_log(disk(), is_clean=True).segments
    bases = [segment.base_offset for segment in layout]
    span = range(bases[1], bases[1 + count])
    data = b"".join(segment.log.read(0, segment.size_bytes) for segment in layout[1 : 1 + count])
    kept = [header.base_offset for header in headers(data) if keep(header)]
    after = [offset for offset in before if offset not in span or offset in kept]

    def swap(file_system: MemoryFileSystem, facts: Facts[list[int]]) -> None:
        log = open_log(file_system, is_clean=True)
        old = log.segments[1 : 1 + count]
        new = rewrite(log, old, keep, at=[span[len(span) // 2]] if in_two else ())
        assert log.replace_segments(old, new)
        facts.note(after)
        log.append(sent(7, COUNT, b"%03d" % COUNT), sync=True)
        facts.note([*after, COUNT])
        log.close()

    def load(file_system: MemoryFileSystem, facts: Facts[list[int]]) -> None:
        log = open_log(file_system, recovery_point=COUNT)
        # The append after the swap may be torn, as long as it was not acknowledged.
        assert all(cut.from_offset >= COUNT for cut in log.report.cuts)
        found = offsets(log)
        assert found in [[*some, *more] for some in (before, after) for more in ((), (COUNT,))]
        if facts:
            assert found[: len(facts[-1])] == facts[-1]
        facts.note(found)
        duplicate = log.append(sent(7, found[-1], b"%03d" % found[-1]))
        assert duplicate.is_duplicate, "the producer's state survives"
        log.close()
        stages = (".cleaned", ".swap")
        assert not [path for path in file_system.paths() if path.endswith(stages)]

    explorer = explored(swap, load, seed=11)
    record_property("counted: simulated power cuts around a swap, nothing lost", explorer.crashes)


@pytest.mark.proof
def test_a_swap_after_one_that_failed_is_safe_at_every_step(
    record_property: Callable[[str, object], None],
) -> None:
    """The disk is full when the first replacement, which needs an empty segment, renames a file. The caller
    deletes its own files, and replaces higher segments; then all of them."""
    before = list(range(COUNT))

    def swap_twice(file_system: MemoryFileSystem, facts: Facts[list[int]]) -> None:
        facts.note(before)
        faulty = FaultyFileSystem(file_system)
        log = open_log(file_system, file_system=faulty, is_clean=True)
        lower = log.segments[1:3]
        new = rewrite(log, lower, lambda header: header.base_offset == lower[0].base_offset)
        faulty.arm(1, fault=Fault.ENOSPC, calls=(Call.RENAME,))
        with pytest.raises(StorageError):
            log.replace_segments(lower, new)
        faulty.heal()
        for kind in SEGMENT_KINDS:
            faulty.unlink(cleaned_path(log, new[0], kind))
        for first in (3, 1):
            old = log.segments[first:4]
            assert log.replace_segments(old, rewrite(log, old))
        log.close()

    explore_kept(swap_twice, record_property)


def test_a_decided_swap_above_a_rewrite_that_was_left_is_safe_at_every_step(
    record_property: Callable[[str, object], None],
) -> None:
    """The open log refuses such a swap. A load, and an earlier version, does not."""

    def swap_twice(file_system: MemoryFileSystem, facts: Facts[list[int]]) -> None:
        facts.note(list(range(COUNT)))
        log = open_log(file_system, is_clean=True)
        rewrite(log, log.segments[:1])
        for old in (log.segments[1:3], log.segments[3:5]):
            bases = [segment.base_offset for segment in old]
            rewrite(log, old, at=bases[1:])
            for base in bases:
                for kind in SEGMENT_KINDS:
                    path = cleaned_path(log, base, kind)
                    if file_system.stat(path) is not None:
                        file_system.open_writable(path).sync()
            swap_segments(file_system, FOLDER, bases, bases)
        log.abandon()

    explore_kept(swap_twice, record_property)


def explore_kept(
    swap: Callable[[MemoryFileSystem, Facts[list[int]]], None],
    record_property: Callable[[str, object], None],
) -> None:
    """Cut the power at every step of swaps that change no record: all records are there."""

    def load(file_system: MemoryFileSystem, facts: Facts[list[int]]) -> None:
        view = open_view(FOLDER, file_system).view
        assert [view.find(offset) is not None for offset in range(COUNT)] == [True] * COUNT
        log = open_log(file_system, recovery_point=COUNT)
        assert log.report.cuts == []
        assert offsets(log) == list(range(COUNT))
        log.close()
        stages = (".cleaned", ".swap")
        assert not [path for path in file_system.paths() if path.endswith(stages)]

    explorer = explored(swap, load, seed=12)
    record_property(
        "counted: simulated power cuts around two swaps, nothing lost", explorer.crashes
    )
