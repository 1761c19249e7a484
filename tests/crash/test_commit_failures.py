"""The n-th call of a commit fails, for every n: an I/O error, a full disk, no descriptors, an interrupt.

Goal: whoever commits gets one clean error, or none; readers see all of a commit or nothing; a second try puts
it there once. Method: each scenario runs on a file system that fails once, or from then on; then it is
healed, and what is left is looked at as after a kill and after a power cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection

import pytest

from stratalog.errors import StratalogError
from stratalog.testing import Call, Facts, Fault, FaultyFileSystem, crash_state
from tests.crash.commit_world import Fact, World, new_disk
from tests.crash.test_commit_crashes import SCENARIOS, Scenario, journals
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]

TROUBLES = {
    "EIO": (Fault.EIO, False),
    "EIO from then on": (Fault.EIO, True),
    "ENOSPC": (Fault.ENOSPC, False),
    "ENOSPC from then on": (Fault.ENOSPC, True),
    "half a write": (Fault.SHORT_WRITE, False),
    "EMFILE": (Fault.EMFILE, False),
    "interrupt": (Fault.INTERRUPT, False),
}
EXPECTED = (StratalogError, MemoryError, KeyboardInterrupt)
SWEPT = ("small_pieces", "large_pieces", "rolls", "log_append_time", "small_journal")


def sweep(
    scenario: Scenario,
    trouble: str,
    *,
    first: int = 1,
    stride: int = 1,
    calls: Collection[Call] | None = None,
) -> int:
    """Fail every ``stride``-th call, of all or of some, until there is none; how many there were."""
    fault, is_sticky = TROUBLES[trouble]
    number, done = first, 0
    while True:
        disk, facts = new_disk(), Facts[Fact]()
        file_system = FaultyFileSystem(
            disk, fail_at=number, fault=fault, sticky=is_sticky, calls=calls
        )
        error: BaseException | None = None
        try:
            scenario.steps(
                World(
                    file_system, facts, disk.clock, scenario.configs, batch_options=scenario.options
                )
            )
        except EXPECTED as caught:
            error = caught
        if not file_system.failed:
            assert error is None
            return done
        # Where the disk takes nothing any more, not even a note, the machine is restarted.
        states = ["all-lost"]
        if not (is_sticky and fault is Fault.EIO):
            states += ["killed", f"random-{number}"]
        try:
            for state in states:
                left, known = crash_state(disk, state), facts.fork()
                scenario.check()(left, known)
                # What a recovery went by must be on the disk, also where a failed sync lets it look so.
                scenario.check()(crash_state(left, "all-lost"), known)
        except Exception as wrong:
            raise AssertionError(
                f"{wrong!r} after call {number} failed: {file_system.failed[0]}; it was told as {error!r}"
            ) from wrong
        number, done = number + stride, done + 1


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", SWEPT)
def test_the_nth_call_of_a_commit_fails(name: str, trouble: str, record_property: Counted) -> None:
    stride = 1 if SCALE > 1 else sized(211, 53)
    first = 1 + zlib.crc32(f"{name} {trouble}".encode()) % stride
    scenario = SCENARIOS[name]
    with journals(scenario):
        done = sweep(scenario, trouble, first=first, stride=stride)
    record_property("counted: failed calls of commits, each record there once", done)
