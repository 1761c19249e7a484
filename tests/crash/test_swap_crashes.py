"""The power is cut at every step of a swap of segments in an open log, and again in the recovery after it:
the log has the old segments or the new ones, in every state that a disk may be left in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stratalog.records.model import BatchHeader
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Explorer, Facts, MemoryFileSystem
from tests.crash.driver import CONFIG, FOLDER
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import headers, offsets, sent
from tests.storage.replace.rewrites import Keep, even, everything, nothing, rewrite

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


def open_log(file_system: MemoryFileSystem, **how: Any) -> PartitionLog:
    return PartitionLog.open(
        FOLDER, CONFIG, file_system=file_system, clock=file_system.clock, **how
    )


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

    explorer = Explorer(
        swap,
        load,
        seed=fresh(11),
        states_per_point=sized(3, 6 * SCALE),
        depth=2,
        nested_points=sized(1, 3),
        nested_states=1,
        start=disk,
    ).run()
    assert explorer.points > 20
    record_property("counted: simulated power cuts around a swap, nothing lost", explorer.crashes)
