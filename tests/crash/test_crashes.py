"""The power is cut at every step of every scenario, and again in the recovery, and in the one after that.

Goal: nothing that was acknowledged as synced is ever lost, what comes back is a beginning of what was
appended without a hole, and what recovery has shown stays (D1, D2, D4 to D6, P1, T1, T4 of the project's
invariants). Each crash leaves of the unsynced bytes and names what a disk may leave: nothing, all, some
writes and not others, parts of them, zeros. The seed of a failure and the path to it are printed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.testing import Explorer, replay
from tests.crash.driver import new_disk
from tests.crash.promises import Promise
from tests.crash.scenarios import SCENARIOS, Scenario, random_scenario
from tests.scale import SCALE, fresh, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]

STATES = sized(1, 2 if SCALE == 1 else 10)
#: Random scenarios are explored in blocks, so that workers share them: a million crashes under SCALE=50.
BLOCKS = 8
CRASHES_PER_BLOCK = sized(60, 400 if SCALE == 1 else 2500 * SCALE)


def explored(scenario: Scenario, seed: int, *, states: int = STATES) -> Explorer[Promise]:
    return Explorer(
        scenario.runs(),
        scenario.check(),
        seed=seed,
        states_per_point=states,
        depth=sized(2, 3),
        nested_points=1 if SCALE == 1 else 2,
        nested_states=1,
        extremes_first=SCALE > 1,
        start=new_disk,
    ).run()


def count(record_property: Counted, *explorers: Explorer[Promise]) -> None:
    total = sum(each.crashes for each in explorers)
    nested = sum(sum(each.crashes_by_depth[1:]) for each in explorers)
    record_property("counted: simulated power cuts, no acknowledged record lost", total)
    record_property("counted: simulated power cuts inside a recovery, among those", nested)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_acknowledged_is_lost(name: str, record_property: Counted) -> None:
    """To see a failure again: ``replay_path(name, path)`` with the path that it names."""
    explorer = explored(SCENARIOS[name], seed=fresh(1))
    assert explorer.points > 20, "the scenario has hardly any steps"
    count(record_property, explorer)


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("depth", [2, 3])
def test_nothing_acknowledged_is_lost_around_a_truncation(
    depth: int, record_property: Counted
) -> None:
    """A wider look at what a kill, and then a power cut, leave of a truncation and its checkpoint."""
    scenario = SCENARIOS["truncation"]
    explorer = Explorer(
        scenario.runs(),
        scenario.check(),
        seed=fresh(depth),
        states_per_point=4,
        depth=depth,
        nested_points=4 if depth == 2 else 2,
        nested_states=2,
        start=new_disk,
    ).run()
    count(record_property, explorer)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_acknowledged_is_lost_in_random_scenarios(
    block: int, record_property: Counted
) -> None:
    """Scenarios that chance writes, one seed after the other, until there were enough crashes."""
    explorers: list[Explorer[Promise]] = []
    seed = fresh(block * 1_000_000)
    while sum(each.crashes for each in explorers) < CRASHES_PER_BLOCK:
        try:
            explorers.append(explored(random_scenario(seed), seed))
        except Exception as error:
            error.add_note(f"in random_scenario({seed})")
            raise
        seed += 1
    count(record_property, *explorers)


def replay_path(name: str | int, path: str) -> None:
    """Go one path again: of a scenario by its name, of a random one by its seed."""
    scenario = SCENARIOS[name] if isinstance(name, str) else random_scenario(name)
    replay(scenario.runs(), scenario.check(), path, start=new_disk)
