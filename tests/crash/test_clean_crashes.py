"""The power is cut at every step of a cleaning, and again in the recovery after it; and every call fails.

Goal: the log has, for each group of segments, the old or the new ones. No key is lost, none comes back,
nothing is reordered, readers of both isolations see one of the states that a cleaning goes through, and the
cleaner's checkpoint is never ahead of the segments (R1 and T1 of the project's invariants).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest

from stratalog.errors import LogFailedError, StratalogError
from stratalog.manager.logs import Logs
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import (
    Explorer,
    Facts,
    FailedCall,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    crash_state,
)
from tests.crash.clean_world import (
    CASES,
    TOPIC,
    Case,
    Fact,
    append_later,
    batches_of,
    check_live,
    live,
)
from tests.scale import SCALE, fresh, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]


#: The others are for ``make proof``.
QUICK = ("merged", "transactions-merged")


def cases(*quick: str) -> list[object]:
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.proof, id=name)
        for name in CASES
    ]


def explored(
    case: Case,
    check: Callable[[MemoryFileSystem, Facts[Fact]], None],
    *,
    seed: int,
    states: int,
    depth: int = 2,
) -> Explorer[Fact]:
    return Explorer(
        case.run,
        check,
        seed=seed,
        states_per_point=states,
        depth=depth,
        nested_points=1 if SCALE == 1 else 2,
        nested_states=1,
        extremes_first=SCALE > 1,
        start=case.new_disk,
    ).run()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", cases(*QUICK))
def test_a_cleaning_is_safe_at_every_step(name: str, record_property: Counted) -> None:
    case = CASES[name]
    assert len(case.states.contents) > 1, "there was nothing to clean"
    states = sized(1, 2 if SCALE == 1 else 10)
    explorer = explored(case, case.check, seed=fresh(1), states=states)
    assert explorer.points > 40
    record_property("counted: power cuts around a cleaning, no key lost", explorer.crashes)


@pytest.mark.parametrize("name", cases("merged"))
def test_what_a_power_cut_left_half_cleaned_the_next_cleaning_finishes(
    name: str, record_property: Counted
) -> None:
    case = CASES[name]

    def check(file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        case.check(file_system, facts)
        case.check_finished(file_system)

    explorer = explored(case, check, seed=fresh(2), states=1, depth=1)
    record_property("counted: power cuts around a cleaning, no key lost", explorer.crashes)


# Every call fails once.

TROUBLES = {
    "EIO": (Fault.EIO, False),
    "EIO from then on": (Fault.EIO, True),
    "ENOSPC": (Fault.ENOSPC, False),
    "ENOSPC from then on": (Fault.ENOSPC, True),
    "half a write": (Fault.SHORT_WRITE, False),
    "EMFILE": (Fault.EMFILE, False),
    "MemoryError": (Fault.MEMORY, False),
    "interrupt": (Fault.INTERRUPT, False),
}
EXPECTED = (StratalogError, MemoryError, KeyboardInterrupt)


def sweep(case: Case, trouble: str, *, first: int = 1, stride: int = 1) -> int:
    """Fail every ``stride``-th call of a cleaning, from the ``first`` on; return how many there were."""
    number, done = first, 0
    while True:
        failed, error = fail_once(case, *TROUBLES[trouble], number)
        if failed is None:
            assert error is None
            return done
        number, done = number + stride, done + 1


def fail_once(
    case: Case, fault: Fault, is_sticky: bool, number: int
) -> tuple[FailedCall | None, BaseException | None]:
    disk = case.new_disk()
    faulty = FaultyFileSystem(disk)
    logs = case.open(faulty, disk.clock)
    log = logs.partition(TOPIC)
    append_later(log, 0)
    error: BaseException | None = None
    faulty.arm(number, fault=fault, sticky=is_sticky)
    try:
        logs.clean(TOPIC)
    except EXPECTED as caught:
        error = caught
    failed = faulty.failed[0] if faulty.failed else None
    faulty.heal()
    fact = Fact(0, 1, 1)
    try:
        if failed is not None:
            # Of what the disk took before it failed for good, nothing is known to be on it.
            states = ["all-lost"] if is_sticky else ["killed", "all-lost", f"random-{number}"]
            for state in states:
                case.check(crash_state(disk, state), Facts([fact]))
            go_on(case, logs, log, fact, disk)
    except Exception as wrong:
        raise AssertionError(
            f"{wrong!r} after call {number} failed: {failed}; it was raised as {error!r}"
        ) from wrong
    return failed, error


def go_on(case: Case, logs: Logs, log: PartitionLog, fact: Fact, disk: MemoryFileSystem) -> None:
    """The log is as it was, or says that it failed. If it works, it is cleaned to the end."""
    if log.failure is not None:
        with pytest.raises(LogFailedError):
            append_later(log, 1)
        with suppress(StratalogError):
            logs.close()
    else:
        case.states.find(batches_of(log), fact)
        check_live(live(log), case.states.live)
        logs.clean(TOPIC)
        append_later(log, 1)
        logs.close()
        fact = Fact(0, 2, 2)
    with case.open(disk, disk.clock) as again:
        opened = again.partition(TOPIC)
        check_live(live(opened), case.states.live)
        left = [path for path in disk.paths() if path.endswith((".cleaned", ".swap"))]
        assert not left, f"left behind: {left}"
        again.clean(TOPIC)
        check_live(live(opened), case.states.live)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", cases("transactions-merged"))
def test_the_nth_call_of_a_cleaning_fails(
    name: str, trouble: str, record_property: Counted
) -> None:
    stride = sized(97, 41 if SCALE == 1 else 3)
    first = 1 + zlib.crc32(f"{name} {trouble}".encode()) % stride
    done = sweep(CASES[name], trouble, first=first, stride=stride)
    record_property("counted: failed calls of cleanings, no key lost", done)
