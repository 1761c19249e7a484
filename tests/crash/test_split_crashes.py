"""The power is cut at every step of a recovery that splits a segment, and again in the one after it: every
batch is there once, in every state that a disk may be left in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.errors import StratalogError
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import (
    Explorer,
    Facts,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    crash_state,
)
from tests.crash.driver import CONFIG, FOLDER
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import name, offsets, small
from tests.storage.wide_segments import FAR, WIDE

pytestmark = pytest.mark.scaled

BEHIND = tuple(range(3 * FAR, 3 * FAR + 3))
LAYOUTS = {"last": (WIDE,), "middle": (WIDE, BEHIND), "first-fits-not": ((FAR + 3, FAR + 4),)}


def disk(*segments: tuple[int, ...]) -> MemoryFileSystem:
    """A disk with these segments; the first starts at 0, whatever is in it."""
    made = MemoryFileSystem(folders=[FOLDER])
    for number, at in enumerate(segments):
        file = made.open_writable(f"{FOLDER}/{name(at[0] if number else 0, '.log')}", create=True)
        file.write_at(0, b"".join(map(small, at)))
        file.close()
    made.sync_all()
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_split_is_safe_at_every_step(
    layout: str, record_property: Callable[[str, object], None]
) -> None:
    segments = LAYOUTS[layout]
    expected = [offset for at in segments for offset in at]

    def load(file_system: MemoryFileSystem, facts: Facts[None]) -> None:
        log = PartitionLog.open(FOLDER, CONFIG, file_system=file_system, clock=file_system.clock)
        assert log.report.cuts == []
        assert offsets(log) == expected
        log.close()
        assert not [path for path in file_system.paths() if path.endswith((".cleaned", ".swap"))]

    explorer = Explorer(
        load,
        load,
        seed=fresh(7),
        states_per_point=sized(1, 3 * SCALE),
        depth=sized(2, 3),
        nested_points=sized(1, 2),
        nested_states=1,
        start=lambda: disk(*segments),
    ).run()
    assert explorer.points > 30
    record_property("counted: simulated power cuts around a split, nothing lost", explorer.crashes)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("sticky", [False, True])
def test_a_split_that_fails_is_done_the_next_time(fault: Fault, sticky: bool) -> None:
    """Whichever call fails: one error, and the log opens with all of it, also after a power cut."""
    failures = 0
    for number in range(1, 1000, sized(3, 1)):
        made = disk(WIDE, BEHIND)
        faulty = FaultyFileSystem(made, fail_at=number, fault=fault, sticky=sticky)
        try:
            PartitionLog.open(FOLDER, CONFIG, file_system=faulty, clock=made.clock).abandon()
        except (StratalogError, MemoryError, KeyboardInterrupt):
            failures += 1
        if not faulty.failed:
            break
        for left in (made, crash_state(made, "all-lost"), crash_state(made, f"random-{number}")):
            log = PartitionLog.open(FOLDER, CONFIG, file_system=left, clock=left.clock)
            assert offsets(log) == [*WIDE, *BEHIND], faulty.failed
            log.close()
    else:
        pytest.fail("it never came to an end")
    assert failures > sized(3, 10)
