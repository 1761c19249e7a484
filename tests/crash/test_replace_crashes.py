"""The power is cut at every step of a replacement of segments, and again in its replay.

Goal: until the replacement is decided, the log has the old segments; from then on it gets the new ones, in
all partitions, whatever dies. Readers see old or new segments group by group, also before anybody has
recovered anything. What others append, compact or delete between the crash and the replay stays as they left
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from stratalog.errors import StorageError
from stratalog.inspect.scan import scan
from stratalog.manager.logs import open_logs
from stratalog.records.model import BatchHeader
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import parse_piece_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Explorer, Facts, MemoryFileSystem, replay
from tests.crash.commit_world import CONFIGS, World
from tests.manager.rewriting import Keep, Replacing, live_bases
from tests.scale import SCALE, fresh, sized
from tests.storage.replace.rewrites import even, nothing, rewrite

pytestmark = pytest.mark.scaled

Counted = Callable[[str, object], None]
Place = tuple[str, int]

ROOT = "/data"
KEY = CommitKey("rewrite", 0)
T0, T1 = ("t", 0), ("t", 1)
COUNT = 28


class Planned(NamedTuple):
    """The groups of each partition, as they were planned first, by their offsets."""

    groups: tuple[tuple[Place, tuple[tuple[int, int], ...]], ...]


class Finished(NamedTuple):
    """The replacement was acknowledged, or seen by one who has finished the recovery."""


class Foreign(NamedTuple):
    """A record that others appended, and whether it was acknowledged."""

    place: Place
    value: str
    is_sure: bool


class Meddled(NamedTuple):
    """Others have compacted or deleted segments of this group."""

    place: Place
    start: int


Fact = Planned | Finished | Foreign | Meddled
#: Returns whether segments were changed that a plan made before may name.
Meddle = Callable[[MemoryFileSystem, Facts[Fact]], bool]


def lowest(header: BatchHeader) -> bool:
    """Nothing of the later segments of a group: the swap adds an empty one."""
    return header.base_offset % 7 == 0


class Scenario(NamedTuple):
    """How segments are replaced, and what others do after the crash."""

    keep: Keep = even
    size: int = 2
    places: tuple[Place, ...] = (T0, T1)
    meddle: Meddle | None = None
    threads: int = 1
    #: Power cuts in a row that ``make test`` looks at; more by night.
    depth: int = 1

    def run(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        here = Replacing(file_system, ROOT, file_system.clock)
        plans = self.plan(here, 0)
        facts.note(self.planned(plans))
        here.commit(KEY, *plans, threads=self.threads)
        facts.note(Finished())
        with open_logs(ROOT, file_system=file_system, clock=file_system.clock) as logs:
            logs.append("t", ["after"], partition=0)
        facts.note(Foreign(T0, "after", is_sure=True))

    def planned(self, plans: list[PartitionGroups]) -> Planned:
        return Planned(tuple(zip(self.places, map(_spans, plans), strict=True)))

    def plan(self, here: Replacing, attempt: int) -> list[PartitionGroups]:
        return [
            here.plan(
                KEY, place, self.keep, size=self.size, attempt=attempt, first_task=10 * number,
                cleaned_to=live_bases(here.file_system, _folder(place))[-1],
            )
            for number, place in enumerate(self.places)
        ]  # fmt: skip

    def check(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        """Look, recover, look again, and try again what was not acknowledged."""
        look = _Look(self.keep, facts)
        for seen in (scanned(file_system), read(file_system)):
            states = look.check(seen)
        for place, cleaned_to in checkpoint(file_system).items():
            assert cleaned_to == 0 or "old" not in states.get(place, ()), (
                "called compacted, and is not"
            )
        is_changed = False
        if self.meddle is not None:
            is_changed = self.meddle(file_system, facts)
            for seen in (scanned(file_system), read(file_system)):
                look.check(seen)
        before = look.check(read(file_system))
        with open_logs(ROOT, file_system=file_system, clock=file_system.clock) as logs:
            for place in self.places:
                logs.partition(*place)
        state = read_journal(file_system, ROOT)
        assert not state.open
        after = look.check(read(file_system), is_settled=True, is_done=state.is_done(KEY))
        if is_changed and self.meddle in (compacts, compacts_first):
            check_stopped(before, after)
        if state.is_done(KEY):
            facts.note(Finished())
        self.check_checkpoint(file_system, facts, is_done=state.is_done(KEY))
        here = Replacing(file_system, ROOT, file_system.clock)
        names = (parse_piece_name(entry.name) for entry in file_system.list_dir(ROOT))
        attempt = 1 + max((name.attempt for name in names if name is not None), default=0)
        plans = self.plan(here, attempt)
        if not any(isinstance(fact, Planned) for fact in facts):
            facts.note(self.planned(plans))
        result = here.commit(KEY, *plans)
        assert result.was_done_before == state.is_done(KEY)
        look.check(read(file_system), is_settled=True, is_done=True)
        facts.note(Finished())
        signs = ("stratalog-piece", ".cleaned", ".swap")
        left = [path for path in file_system.paths() if any(sign in path for sign in signs)]
        assert not left, f"left over: {left}"

    def check_checkpoint(
        self, file_system: MemoryFileSystem, facts: Facts[Fact], *, is_done: bool
    ) -> None:
        """The cleaner checkpoint says that a log is compacted only if all groups were replaced."""
        offsets = checkpoint(file_system)
        for place in self.places:
            found = offsets.get(place, 0)
            if not is_done:
                assert found == 0
            elif not any(isinstance(fact, Meddled) and fact.place == place for fact in facts):
                assert found > 0


class _Look:
    """Whether what is seen may be."""

    def __init__(self, keep: Keep, facts: Facts[Fact]) -> None:
        self._keep = keep
        self._facts = facts

    def check(
        self,
        seen: Mapping[Place, list[str]],
        *,
        is_settled: bool = False,
        is_done: bool = False,
    ) -> dict[Place, list[str]]:
        """Return what each partition has of each group: ``old``, ``new`` or ``others``."""
        planned = next((fact for fact in self._facts if isinstance(fact, Planned)), None)
        if any(isinstance(fact, Finished) for fact in self._facts):
            assert is_done or not is_settled, "what was acknowledged is lost"
        states: dict[Place, list[str]] = {}
        for place, groups in planned.groups if planned is not None else ():
            states[place] = self._check_place(
                place, groups, seen[place], is_settled=is_settled, is_done=is_done
            )
            if is_settled and not is_done:
                assert "new" not in states[place], "nothing was decided, and something was replaced"
        for fact in self._facts:
            if isinstance(fact, Foreign) and fact.is_sure:
                assert fact.value in seen[fact.place], f"{fact.value} is lost"
        return states

    def _check_place(
        self,
        place: Place,
        groups: tuple[tuple[int, int], ...],
        seen: list[str],
        *,
        is_settled: bool,
        is_done: bool,
    ) -> list[str]:
        meddled = {
            fact.start for fact in self._facts if isinstance(fact, Meddled) and fact.place == place
        }
        states: list[str] = []
        for start, end in groups:
            found = [value for value in seen if value[0] == "v" and start <= int(value[1:]) < end]
            old = [f"v{number:02d}" for number in range(start, end)]
            new = [value for value in old if self._keep(_Header(int(value[1:])))]  # type: ignore[arg-type]
            if start in meddled:
                assert not found or not is_settled, f"{place}: what others removed is back: {found}"
                states.append("others")
                continue
            state = "same" if old == new else {str(old): "old", str(new): "new"}.get(str(found))
            assert state is not None, f"{place}: a mixture at {start}: {found}"
            if is_done and "others" not in states:
                assert state != "old", f"{place}: the group at {start} was not replaced"
            states.append(state)
        last = groups[-1][1]
        rest = [value for value in seen if value[0] == "v" and int(value[1:]) >= last]
        assert rest == [f"v{number:02d}" for number in range(last, COUNT)]
        return states


def check_stopped(before: Mapping[Place, list[str]], after: Mapping[Place, list[str]]) -> None:
    """No group was replaced after one that others have changed."""
    for place, states in before.items():
        at = states.index("others") if "others" in states else len(states)
        assert after[place][at:] == states[at:], f"{place}: replaced after what others changed"


class _Header(NamedTuple):
    base_offset: int
    is_transactional: bool = False
    is_control: bool = False


def checkpoint(file_system: MemoryFileSystem) -> dict[Place, int]:
    """Up to where each partition is called compacted."""
    try:
        data = file_system.read_bytes(f"{ROOT}/cleaner-offset-checkpoint")
    except StorageError:
        return {}
    return {(each.topic, each.partition): at for each, at in decode_offsets(data).items()}


def _spans(plan: PartitionGroups) -> tuple[tuple[int, int], ...]:
    return tuple((group.start, group.end) for group in plan.groups)


def _folder(place: Place) -> str:
    return f"{ROOT}/{place[0]}-{place[1]}"


def scanned(file_system: MemoryFileSystem) -> dict[Place, list[str]]:
    """What one sees who reads the files."""
    found: dict[Place, list[str]] = {T0: [], T1: []}
    for batch in scan(ROOT, columns=("topic", "partition", "value"), file_system=file_system):
        for row in batch.to_pylist():
            found[row["topic"], row["partition"]].append(row["value"].decode())
    return found


def read(file_system: MemoryFileSystem) -> dict[Place, list[str]]:
    """What one sees who opens the directory to read it."""
    found: dict[Place, list[str]] = {T0: [], T1: []}
    with open_logs(ROOT, read_only=True, file_system=file_system, clock=file_system.clock) as logs:
        for record in logs.read("t").records():
            found[record.topic, record.partition].append((record.value or b"").decode())
    return found


# --- what others do between the crash and the replay ---------------------------------------------------


def appends(file_system: MemoryFileSystem, facts: Facts[Fact]) -> bool:
    """Kafka is started, and appends."""
    value = f"foreign.{len(facts)}"
    facts.note(Foreign(T0, value, is_sure=False))
    World(file_system, _Ignored(), file_system.clock, CONFIGS).append_beside(T0, value)
    facts.note(Foreign(T0, value, is_sure=True))
    return False


class _Ignored(list):  # type: ignore[type-arg]
    def note(self, fact: object) -> None:
        self.append(fact)


def compacts(file_system: MemoryFileSystem, facts: Facts[Fact]) -> bool:
    """Kafka is started, and compacts the second group of a partition to nothing."""
    return _meddle(file_system, facts, 1)


def compacts_first(file_system: MemoryFileSystem, facts: Facts[Fact]) -> bool:
    """The same with the first group."""
    return _meddle(file_system, facts, 0)


def _meddle(file_system: MemoryFileSystem, facts: Facts[Fact], number: int) -> bool:
    planned = next((fact for fact in facts if isinstance(fact, Planned)), None)
    if planned is None:
        return False
    start, end = planned.groups[0][1][number]
    facts.note(Meddled(T0, start))
    log = PartitionLog.open(
        _folder(T0), LogConfig.of(CONFIGS), file_system=file_system, clock=file_system.clock
    )
    old = [each for each in log.segments[:-1] if start <= each.base_offset < end]
    # A group that an earlier call emptied before the open plan was made is still as that plan found it.
    is_changed = any(each.size_bytes for each in old)
    assert log.replace_segments(old, rewrite(log, old, nothing))
    log.close()
    log.remove_due(all_of_them=True)
    file_system.unlink(f"{ROOT}/.kafka_cleanshutdown")
    return is_changed


def retains(file_system: MemoryFileSystem, facts: Facts[Fact]) -> bool:
    """Kafka is started, and deletes the first segments."""
    planned = next((fact for fact in facts if isinstance(fact, Planned)), None)
    if planned is None:
        return False
    start, end = planned.groups[0][1][0]
    facts.note(Meddled(T0, start))
    log = PartitionLog.open(
        _folder(T0), LogConfig.of(CONFIGS), file_system=file_system, clock=file_system.clock
    )
    log.advance_high_watermark(log.log_end)
    log.advance_start(end)
    log.retain()
    log.close()
    log.remove_due(all_of_them=True)
    file_system.unlink(f"{ROOT}/.kafka_cleanshutdown")
    return True


def disk() -> MemoryFileSystem:
    made = MemoryFileSystem(folders=[ROOT])
    with open_logs(ROOT, file_system=made, clock=made.clock) as logs:
        logs.create("t", 2, CONFIGS)
        for number in range(COUNT):
            for partition in (0, 1):
                logs.append("t", [(f"k{number}", f"v{number:02d}")], partition=partition)
    assert len(live_bases(made, _folder(T0))) >= 5
    made.sync_all()
    return made


SCENARIOS: dict[str, Scenario] = {
    "two_partitions": Scenario(depth=2),
    "one_for_one": Scenario(size=1, places=(T0,)),
    "all_in_one": Scenario(size=9),
    "empty_segments": Scenario(keep=lowest, places=(T0,), depth=2),
    "everything_goes": Scenario(keep=nothing),
    "others_append": Scenario(meddle=appends, places=(T0,), depth=2),
    "others_compact": Scenario(meddle=compacts, places=(T0,), depth=2),
    "others_compact_first": Scenario(meddle=compacts_first),
    "others_retain": Scenario(meddle=retains, places=(T0,)),
    "threads": Scenario(threads=4, depth=2),
}
QUICK = ("all_in_one",)


def explored(scenario: Scenario, seed: int) -> Explorer[Fact]:
    return Explorer(
        scenario.run,
        scenario.check,
        seed=seed,
        states_per_point=1 if SCALE == 1 else 8,
        depth=sized(1, scenario.depth if SCALE == 1 else 3),
        nested_points=1 if SCALE == 1 else 3,
        nested_states=1,
        extremes_first=SCALE > 1,
        start=disk,
    ).run()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.proof) for name in SCENARIOS],
)
def test_a_replacement_happens_once_or_not_at_all(name: str, record_property: Counted) -> None:
    """To see a failure again: ``replay_path(name, path)`` with the path that it names."""
    explorer = explored(SCENARIOS[name], seed=fresh(1))
    assert explorer.points > 40, "the scenario has hardly any steps"
    record_property("counted: power cuts around replacements, old or new", explorer.crashes)
    nested = sum(explorer.crashes_by_depth[1:])
    record_property("counted: power cuts inside a replay, among those", nested)


def replay_path(name: str, path: str) -> None:
    """Go one path again."""
    replay(SCENARIOS[name].run, SCENARIOS[name].check, path, start=disk)
