"""The n-th call fails, for every n: an I/O error, a full disk, no more descriptors, no memory, an interrupt.

Goal: whoever calls gets one clean error, nothing acknowledged is lost, the log opens again; when there is
room again it continues without being opened; after a failed sync it acknowledges nothing (D7, D8, X3).
Method: each scenario runs on a file system that fails once (or from then on), is healed, goes on if it can,
and is then looked at as after a kill and after a power cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from stratalog.errors import LogFailedError, StorageError, StratalogError
from stratalog.storage.names import FAILED_SYNC
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import Call, Facts, Fault, FaultyFileSystem, MemoryFileSystem, crash_state
from tests.crash.driver import FOLDER, Driver, new_disk
from tests.crash.promises import Promise, read_all
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]


class Trouble(NamedTuple):
    """What happens to the n-th call."""

    fault: Fault
    sticky: bool = False

    @property
    def may_pass(self) -> bool:
        """Whether the log is to go on by itself when it is over: nothing was lost, there was no room."""
        return self.fault in (Fault.ENOSPC, Fault.SHORT_WRITE, Fault.EMFILE)


TROUBLES = {
    "EIO": Trouble(Fault.EIO),
    "EIO from then on": Trouble(Fault.EIO, sticky=True),
    "ENOSPC": Trouble(Fault.ENOSPC),
    "ENOSPC from then on": Trouble(Fault.ENOSPC, sticky=True),
    "half a write": Trouble(Fault.SHORT_WRITE),
    "EMFILE": Trouble(Fault.EMFILE),
    "EMFILE from then on": Trouble(Fault.EMFILE, sticky=True),
    "MemoryError": Trouble(Fault.MEMORY),
    "interrupt": Trouble(Fault.INTERRUPT),
}
EXPECTED = (StratalogError, MemoryError, KeyboardInterrupt)
SYNCS = (Call.SYNC, Call.SYNC_DIR)


class Run:
    """One run of a scenario in which the n-th call fails."""

    def __init__(self, scenario: Scenario, trouble: Trouble, number: int) -> None:
        self.scenario = scenario
        self.trouble = trouble
        self.number = number
        self.disk = new_disk()
        self.file_system = FaultyFileSystem(
            self.disk, fail_at=number, fault=trouble.fault, sticky=trouble.sticky
        )
        self.facts: Facts[Promise] = Facts()
        self.driver: Driver | None = None
        self.error: BaseException | None = None
        try:
            self.driver = scenario.driver(self.file_system, self.facts)
            scenario.steps(self.driver)
        except EXPECTED as error:
            self.error = error
        #: Which call failed first; None where the scenario has no n-th call.
        self.failed = self.file_system.failed[0] if self.file_system.failed else None
        self.file_system.heal()

    def go_on(self) -> None:
        """What is left of the log is used again, as far as it says that it can be."""
        driver = self.driver
        if self.trouble == TROUBLES["EIO from then on"]:
            # Where the disk takes nothing any more, not even a note, the machine is restarted.
            self.disk = crash_state(self.disk, "all-lost")
            self.file_system = FaultyFileSystem(self.disk)
            promise = self.facts[-1] if self.facts else Promise()
            driver = self.scenario.driver(self.file_system, self.facts, promise=promise)
        elif driver is None:
            driver = self.scenario.driver(self.file_system, self.facts)
        elif driver.log.failure is not None:
            assert not self.trouble.may_pass or self.may_fail(driver), "there was no room, no more"
            self.refused(driver)
            driver.keeper.abandon()
            driver.open()
        elif driver.is_closed:
            driver.keeper.lock.close()
            driver.open()
        self.reconcile(driver)
        self.read(driver)
        driver.append(1)
        for seed in range(2):
            self.check(f"random-{self.number + seed}")
        driver.roll()
        driver.append(1, producer=9)
        driver.retry(9)
        driver.flush()
        driver.append(1)

    def may_fail(self, driver: Driver) -> bool:
        """Whether a want of room may end the use of a log: a sync that failed for it is one that failed,
        and what is cut in half must not be written to."""
        assert self.failed is not None
        is_sync = self.failed.call in SYNCS and self.trouble.fault is Fault.ENOSPC
        return is_sync or driver.is_cutting

    def refused(self, driver: Driver) -> None:
        """A log that failed says so, and acknowledges nothing; what is in it can be read."""
        end, synced = driver.log.log_end, driver.log.synced_offset
        promise = driver.promise
        with pytest.raises(LogFailedError):
            driver.append(1)
        driver.note(promise)  # of what was refused nothing can be in the log
        with pytest.raises(LogFailedError):
            driver.log.sync()
        assert (driver.log.log_end, driver.log.synced_offset) == (end, synced)

    def reconcile(self, driver: Driver) -> None:
        """An append that failed may be in the log or not: nobody was promised either."""
        history = driver.promise.history
        while history and history[-1].next_offset > driver.log.log_end:
            history = history[:-1]
        driver.note(driver.promise._replace(history=history))

    def read(self, driver: Driver) -> None:
        seen = read_all(driver.log, Isolation.LOG_END)
        history = {batch.base_offset: batch for batch in driver.promise.history}
        assert all(history.get(batch.base_offset) == batch for batch in seen)

    def check(self, state: str) -> None:
        disk: MemoryFileSystem = crash_state(self.disk, state)
        self.scenario.check()(disk, self.facts.fork())


def sweep(scenario: Scenario, trouble: Trouble, *, first: int = 1, stride: int = 1) -> int:
    """Fail every ``stride``-th call, from the ``first`` on, until there is none; how many there were."""
    number, done = first, 0
    while True:
        run = Run(scenario, trouble, number)
        if run.failed is None:
            assert run.error is None
            return done
        try:
            for state in ("killed", "all-lost"):
                run.check(state)
            run.go_on()
            for state in ("killed", "all-lost", f"random-{number}"):
                run.check(state)
        except Exception as error:
            raise AssertionError(
                f"{error!r} after call {number} failed: {run.failed}; it was told as {run.error!r}"
            ) from error
        number, done = number + stride, done + 1


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_nth_call_fails(name: str, trouble: str, record_property: Counted) -> None:
    stride = 1 if SCALE > 1 else sized(61, 13)
    first = 1 + zlib.crc32(f"{name} {trouble}".encode()) % stride
    done = sweep(SCENARIOS[name], TROUBLES[trouble], first=first, stride=stride)
    record_property("counted: failed calls, no acknowledged record lost", done)


def test_what_a_failed_sync_lost_is_written_again() -> None:
    """After a failed sync the system shows what never reached the disk, and calls it clean. So the next
    who opens the log writes it once more: what is acknowledged behind it would be lost with it."""
    scenario, disk, facts = SCENARIOS["synced_appends"], new_disk(), Facts[Promise]()
    file_system = FaultyFileSystem(disk)
    driver = scenario.driver(file_system, facts)
    driver.append(1)
    file_system.arm(1, fault=Fault.EIO, calls=[Call.SYNC])
    with pytest.raises(StorageError):
        driver.append(1)
    assert disk.stat(f"{FOLDER}/{FAILED_SYNC}") is not None
    driver.keeper.abandon()
    driver.open()
    assert disk.stat(f"{FOLDER}/{FAILED_SYNC}") is None
    assert driver.log.log_end == 2
    driver.append(1)
    scenario.check()(crash_state(disk, "all-lost"), facts)


def test_on_a_full_disk_an_index_becomes_the_note_of_a_failed_sync() -> None:
    scenario, disk, facts = SCENARIOS["synced_appends"], new_disk(), Facts[Promise]()
    file_system = FaultyFileSystem(disk)
    driver = scenario.driver(file_system, facts)
    driver.append(1, sync=False)
    file_system.arm(1, fault=Fault.ENOSPC, sticky=True, calls=[Call.SYNC, Call.CREATE])
    with pytest.raises(StorageError):
        driver.sync()
    file_system.heal()
    assert disk.stat(f"{FOLDER}/{FAILED_SYNC}") is not None
    driver.keeper.abandon()
    driver.open()
    driver.append(1)
    scenario.check()(crash_state(disk, "all-lost"), facts)
