"""The power is cut at every step of a recovery that truncates a damaged log (``on_damage="cut"``), and again
in the recovery after it: every batch stays in the log or in a file that keeps what was truncated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.errors import StratalogError
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.tail_verdict import OnDamage
from stratalog.testing import (
    Explorer,
    Facts,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    crash_state,
)
from tests.crash.driver import CONFIG, FOLDER
from tests.scale import SCALE
from tests.storage.logs import name, offsets, small

pytestmark = pytest.mark.scaled

SEGMENTS = (range(5), range(5, 10), range(10, 15), range(15, 17))
DAMAGED = 7
BATCHES = {offset: small(offset) for segment in SEGMENTS for offset in segment}
BATCHES[DAMAGED] = BATCHES[DAMAGED][:-1] + bytes([BATCHES[DAMAGED][-1] ^ 1])


def disk() -> MemoryFileSystem:
    made = MemoryFileSystem(folders=[FOLDER])
    for segment in SEGMENTS:
        file = made.open_writable(f"{FOLDER}/{name(segment[0], '.log')}", create=True)
        file.write_at(0, b"".join(BATCHES[offset] for offset in segment))
        file.close()
    made.sync_all()
    return made


def recover(file_system: MemoryFileSystem | FaultyFileSystem, clock: MemoryFileSystem) -> None:
    log = PartitionLog.open(
        FOLDER, CONFIG, file_system=file_system, clock=clock.clock, on_damage=OnDamage.CUT
    )
    assert offsets(log) == list(range(DAMAGED))
    log.close()
    log.remove_due(all_of_them=True)


def check_nothing_is_lost(file_system: MemoryFileSystem) -> None:
    stored = []
    for path in file_system.paths():
        if path.endswith((".log", ".cut")):
            file = file_system.open_readable(path)
            stored.append(file.read(0, file.size()))
            file.close()
    for offset, batch in BATCHES.items():
        assert any(batch in data for data in stored), f"the batch at offset {offset} is lost"


def test_a_cut_is_safe_at_every_step(record_property: Callable[[str, object], None]) -> None:
    def load(file_system: MemoryFileSystem, facts: Facts[None]) -> None:
        check_nothing_is_lost(file_system)
        recover(file_system, file_system)
        check_nothing_is_lost(file_system)

    explorer = Explorer(
        load,
        load,
        seed=7,
        states_per_point=3 * SCALE,
        depth=2,
        nested_points=2,
        nested_states=1,
        start=disk,
    ).run()
    assert explorer.points > 20
    record_property(
        "counted: simulated power cuts around a truncation, nothing lost", explorer.crashes
    )


@pytest.mark.parametrize("fault", Fault)
def test_a_cut_that_fails_is_done_the_next_time(fault: Fault) -> None:
    failures = 0
    for number in range(1, 1000):
        made = disk()
        faulty = FaultyFileSystem(made, fail_at=number, fault=fault, sticky=False)
        try:
            recover(faulty, made)
        except (StratalogError, MemoryError, KeyboardInterrupt):
            failures += 1
        if not faulty.failed:
            break
        for left in (made, crash_state(made, "all-lost"), crash_state(made, f"random-{number}")):
            check_nothing_is_lost(left)
            recover(left, left)
            check_nothing_is_lost(left)
    else:
        pytest.fail("it never came to an end")
    assert failures > 5
