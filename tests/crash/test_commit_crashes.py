"""The power is cut at every step of commits, and again in their replay, and in the one after that.

Goal: a commit is in the logs once or not at all, whatever dies and however often it is tried; readers see all
of it or nothing, also before anybody has recovered anything; nothing that others wrote is lost, be it written
between the crash and the replay (the promises of the exactly-once commit).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import pytest

from stratalog.records.builder import BatchOptions
from stratalog.records.layout import Codec
from stratalog.storage.commits import journal as commit_journal
from stratalog.testing import Explorer, Facts, MemoryFileSystem, replay
from stratalog.testing.open_files import MemoryWritableFile
from tests.crash.commit_world import CONFIGS, Fact, Place, Recovery, World, new_disk
from tests.scale import SCALE, fresh, sized

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]

STATES = 1 if SCALE == 1 else 8
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


class Scenario(NamedTuple):
    """What is done, and to what kind of topics."""

    steps: Callable[[World], None]
    configs: Mapping[str, object] = CONFIGS
    options: BatchOptions | None = None
    foreign_at: tuple[Place, ...] = ()
    small_journal: bool = False
    #: Power cuts in a row that ``make test`` looks at; more by night.
    depth: int = 1
    threads: int = 1

    def run(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        self.steps(
            World(
                file_system,
                facts,
                file_system.clock,
                self.configs,
                batch_options=self.options,
                threads=self.threads,
            )
        )

    def check(self) -> Recovery:
        return Recovery(self.configs, foreign_at=self.foreign_at, batch_options=self.options)


def small_pieces(world: World) -> None:
    """Two commits of a batch or two; the first makes the topic."""
    world.commit(0, {T0: 1, T1: 2}, topics={"t": 2})
    world.commit(1, {T0: 2}, {T0: 1, T1: 1})


def large_pieces(world: World) -> None:
    """Pieces that become segments: into an empty log, behind a segment, one behind the other."""
    world.commit(0, {T0: 4}, {T0: 3, T1: 1}, topics={"t": 2})
    world.commit(1, {T0: 1, T1: 4}, {T0: 4})


def rolls(world: World) -> None:
    """Small pieces that together pass the end of a segment."""
    world.commit(0, {T0: 2}, {T0: 2}, {T0: 2, T1: 1}, topics={"t": 2})
    world.commit(1, {T0: 2}, {T1: 2}, {T0: 2})


def several_topics(world: World) -> None:
    """A topic is made by each of two commits, one of them without a record."""
    world.commit(0, {T0: 1}, topics={"t": 1})
    world.commit(1, {T0: 1, U0: 4}, topics={"u": 1})
    world.commit(2)


def others_between(world: World) -> None:
    """Others write between the commits."""
    world.commit(0, {T0: 1, T1: 1}, topics={"t": 2})
    world.append(T0, "other.1")
    world.commit(1, {T0: 4, T1: 1})
    world.append(T1, "other.2")


SCENARIOS: dict[str, Scenario] = {
    "small_pieces": Scenario(small_pieces, depth=2),
    "large_pieces": Scenario(large_pieces, depth=2),
    "rolls": Scenario(rolls),
    "several_topics": Scenario(several_topics),
    "others_between": Scenario(others_between),
    "foreign_small": Scenario(small_pieces, foreign_at=(T0, T1), depth=2),
    "foreign_large": Scenario(large_pieces, foreign_at=(T0,)),
    "foreign_rolls": Scenario(rolls, foreign_at=(T1, T0), depth=2),
    "small_journal": Scenario(rolls, small_journal=True),
    "foreign_small_journal": Scenario(large_pieces, foreign_at=(T1,), small_journal=True),
    "log_append_time": Scenario(
        large_pieces, {**CONFIGS, "message.timestamp.type": "LogAppendTime"}
    ),
    "another_codec": Scenario(
        large_pieces, {**CONFIGS, "compression.type": "zstd"},
        BatchOptions(batch_bytes=30, codec=Codec.GZIP), foreign_at=(T0,),
    ),
    "threads_small": Scenario(small_pieces, depth=2, threads=4),
    "threads_large": Scenario(large_pieces, foreign_at=(T0, T1), threads=4),
    "threads_rolls": Scenario(rolls, depth=2, threads=4),
    "compacted": Scenario(small_pieces, {**CONFIGS, "cleanup.policy": "compact"}),
}  # fmt: skip


def random_scenario(seed: int) -> Scenario:
    """A scenario that chance writes."""

    def steps(world: World) -> None:
        random = Random(seed)
        world.commit(0, {T0: random.randint(1, 4)}, topics={"t": 2})
        for version in range(1, random.randint(2, 2 if SCALE == 1 else 4)):
            tasks = [
                {place: random.choice((1, 1, 2, 3, 5)) for place in random.sample((T0, T1), 2)}
                for _ in range(random.randint(0, 3))
            ]
            world.commit(version, *tasks)
            if random.random() < 0.4:
                world.append(random.choice((T0, T1)), f"other.{version}")

    foreign = ((), (T0,), (T1,), (T0, T1))[seed % 4]
    return Scenario(steps, foreign_at=foreign, small_journal=seed % 3 == 0)


def explored(scenario: Scenario, seed: int, *, depth: int | None = None) -> Explorer[Fact]:
    explorer = Explorer(
        scenario.run,
        scenario.check(),
        seed=seed,
        states_per_point=STATES,
        depth=depth or sized(1, scenario.depth if SCALE == 1 else 3),
        nested_points=1 if SCALE == 1 else 3,
        nested_states=1,
        extremes_first=SCALE > 1,
        start=new_disk,
    )
    with journals(scenario), taking_turns(scenario):
        return explorer.run()


@contextmanager
def taking_turns(scenario: Scenario) -> Iterator[None]:
    """Several threads let each other go first before they change a file, now and then: partitions are half
    written side by side. Which of them comes first is not the same every time."""
    random = Random(scenario.depth)

    def politely(real: Callable[..., None]) -> Callable[..., None]:
        def call(file: MemoryWritableFile, *given: Any) -> None:
            if threading.current_thread() is not threading.main_thread():
                time.sleep(random.choice((0, 0.0002)))
            real(file, *given)

        return call

    with ExitStack() as patched:
        for name in ("write_at", "sync") if scenario.threads > 1 else ():
            polite = politely(getattr(MemoryWritableFile, name))
            patched.enter_context(mock.patch.object(MemoryWritableFile, name, polite))
        yield


class journals:
    """A journal that is written anew at every second commit, and knows details of two, where wanted."""

    def __init__(self, scenario: Scenario) -> None:
        self._patches = (
            [
                mock.patch.object(commit_journal, "DETAILS_KEPT", 2),
                mock.patch.object(commit_journal, "_COMPACT_BYTES", 300),
            ]
            if scenario.small_journal
            else []
        )

    def __enter__(self) -> None:
        for each in self._patches:
            each.start()

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()


def count(record_property: Counted, *explorers: Explorer[Fact]) -> None:
    total = sum(each.crashes for each in explorers)
    nested = sum(sum(each.crashes_by_depth[1:]) for each in explorers)
    record_property("counted: power cuts around commits, each record there once", total)
    record_property("counted: power cuts inside a replay, among those", nested)


#: What ``make test`` has time for: a commit as it is, with other writers, and with a journal of few lines.
QUICK = ("small_pieces", "foreign_small")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.proof) for name in SCENARIOS],
)
def test_every_commit_is_there_once(name: str, record_property: Counted) -> None:
    """To see a failure again: ``replay_path(name, path)`` with the path that it names."""
    explorer = explored(SCENARIOS[name], seed=fresh(1))
    assert explorer.points > 20, "the scenario has hardly any steps"
    count(record_property, explorer)


@pytest.mark.parametrize("block", [0, pytest.param(1, marks=pytest.mark.proof)])
def test_every_commit_is_there_once_in_random_scenarios(
    block: int, record_property: Counted
) -> None:
    explorers: list[Explorer[Fact]] = []
    seed = fresh(block * 1_000_000)
    while sum(each.crashes for each in explorers) < sized(20, 150 * SCALE):
        try:
            explorers.append(explored(random_scenario(seed), seed, depth=sized(2, 3)))
        except Exception as error:
            error.add_note(f"in random_scenario({seed})")
            raise
        seed += 1
    count(record_property, *explorers)


def replay_path(name: str | int, path: str) -> None:
    """Go one path again: of a scenario by its name, of a random one by its seed."""
    scenario = SCENARIOS[name] if isinstance(name, str) else random_scenario(name)
    with journals(scenario):
        replay(scenario.run, scenario.check(), path, start=new_disk)
