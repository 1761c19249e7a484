"""Cut the power at every step of a scenario, recover, and look whether what was promised is still there.

The scenario runs once. Before each change of the disk, the disk and the facts noted so far are set aside.
From each of these moments states are made that may come up after a power cut; the check is given each,
recovers, and looks. With a greater depth the power is cut in that recovery too, and in the recovery from
that. All of it follows from the seed, and a failure names the path that leads to it:

    explore(scenario, check, seed=7, depth=2)
    replay(scenario, check, "12:all-lost/3:random-1871")

A scenario and a check must do the same each time that they are run: one thread, and ``file_system.clock``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Final, Generic, NamedTuple, Self, TypeVar, overload

from stratalog.testing.crash import crash_state, crash_states
from stratalog.testing.machine import Change, PowerCut
from stratalog.testing.memory_files import MemoryFileSystem

__all__ = ["Check", "CrashCheckError", "Explorer", "Facts", "Scenario", "Step", "explore", "replay"]

F = TypeVar("F")


class Facts(Sequence[F]):
    """What a scenario noted, in order: from then on, whatever happens, it must hold.

    A check may note more: what a recovery once showed must not be gone after the next power cut.
    """

    def __init__(self, facts: Sequence[F] = ()) -> None:
        self._facts = list(facts)
        self._count = len(self._facts)

    def note(self, fact: F) -> None:
        if len(self._facts) > self._count:  # a fork goes on from here otherwise
            self._facts = self._facts[: self._count]
        self._facts.append(fact)
        self._count += 1

    def fork(self) -> Facts[F]:
        """The facts up to now. It costs nothing: the list is shared for as long as both agree."""
        other: Facts[F] = Facts()
        other._facts = self._facts
        other._count = self._count
        return other

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> F: ...
    @overload
    def __getitem__(self, index: slice) -> list[F]: ...
    def __getitem__(self, index: int | slice) -> F | list[F]:
        if isinstance(index, slice):
            return self._facts[: self._count][index]
        return self._facts[range(self._count)[index]]

    def __iter__(self) -> Iterator[F]:
        return islice(self._facts, self._count)


Scenario = Callable[[MemoryFileSystem, Facts[F]], None]
#: Recovers what is on the disk, and raises where a fact does not hold.
Check = Callable[[MemoryFileSystem, Facts[F]], None]


class Step(NamedTuple):
    """A power cut: before the how-many-th change, and what was left."""

    point: int
    state: str

    def __str__(self) -> str:
        return f"{self.point}:{self.state}"

    @staticmethod
    def parse_path(path: str) -> tuple[Step, ...]:
        steps = []
        for text in path.split("/"):
            point, _, state = text.partition(":")
            steps.append(Step(int(point), state))
        return tuple(steps)


class CrashCheckError(AssertionError):
    """A check failed after these power cuts. ``path`` is what ``replay`` takes."""

    def __init__(self, path: str, seed: int, error: Exception, story: str) -> None:
        super().__init__(
            f"{type(error).__name__}: {error}\n{story}\n"
            f"seed {seed}; to see it again: replay(scenario, check, {path!r})"
        )
        self.path = path
        self.seed = seed


class _Moment(NamedTuple, Generic[F]):
    point: int
    file_system: MemoryFileSystem
    facts: Facts[F]
    before: str  # which change was about to be made


class _Cut(NamedTuple):
    step: Step
    before: str
    seen: MemoryFileSystem  # as the process saw it


@dataclass
class Explorer(Generic[F]):
    """The parameters of an exploration, and what came of it. The same parameters give the same again.

    ``states_per_point`` states are checked at each point of the scenario: the extremes first, or without
    ``extremes_first`` as chance gives them. In a recovery the power is cut at ``nested_points`` points that
    chance chooses (None: at every one), with ``nested_states`` states each. ``depth`` is the number of power
    cuts in a row. ``start`` makes the disk that the scenario begins with. With ``keep_going``, failures are
    collected and not raised.
    """

    scenario: Scenario[F]
    check: Check[F]
    seed: int = 0
    states_per_point: int = 10
    depth: int = 1
    nested_points: int | None = 2
    nested_states: int = 2
    extremes_first: bool = True
    start: Callable[[], MemoryFileSystem] = MemoryFileSystem
    keep_going: bool = False

    #: Places where the power was cut in the scenario: before each change, and at the end.
    points: int = field(default=0, init=False)
    #: Power cuts with a recovery after them, at each depth.
    crashes_by_depth: list[int] = field(default_factory=list, init=False)
    failures: list[CrashCheckError] = field(default_factory=list, init=False)

    @property
    def crashes(self) -> int:
        return sum(self.crashes_by_depth)

    def run(self) -> Self:
        """Look everywhere. CrashCheckError at the first failure, unless told to keep going."""
        if self.depth < 1 or self.states_per_point < 1 or self.nested_states < 1:
            raise ValueError("depth, states_per_point and nested_states are at least 1")
        random = Random(self.seed)  # noqa: S311
        self.crashes_by_depth = [0] * self.depth
        self.failures = []
        moments = _moments(self.scenario, self.start(), Facts(), None, random)
        self.points = len(moments)
        for moment in moments:
            self._cut_at(moment, (), random)
        return self

    def _cut_at(self, moment: _Moment[F], cuts: tuple[_Cut, ...], random: Random) -> None:
        states = crash_states(
            moment.file_system,
            random,
            self.nested_states if cuts else self.states_per_point,
            extremes_first=self.extremes_first and not cuts,
        )
        for name, file_system in states:
            self.crashes_by_depth[len(cuts)] += 1
            step = Step(moment.point, name)
            path = (*cuts, _Cut(step, moment.before, moment.file_system))
            for nested in self._recover(file_system, moment.facts.fork(), path, random):
                self._cut_at(nested, path, random)

    def _recover(
        self,
        file_system: MemoryFileSystem,
        facts: Facts[F],
        cuts: tuple[_Cut, ...],
        random: Random,
    ) -> list[_Moment[F]]:
        """Check, and where there is depth left, the moments of it at which the power is cut next."""
        try:
            if len(cuts) < self.depth:
                return _moments(self.check, file_system, facts, self.nested_points, random)
            self.check(file_system, facts)
        except Exception as error:
            path = "/".join(str(cut.step) for cut in cuts)
            failure = CrashCheckError(path, self.seed, error, _story(cuts))
            if not self.keep_going:
                raise failure from error
            self.failures.append(failure)
        return []


def explore(
    scenario: Scenario[F],
    check: Check[F],
    *,
    seed: int = 0,
    states_per_point: int = 10,
    depth: int = 1,
    start: Callable[[], MemoryFileSystem] = MemoryFileSystem,
) -> Explorer[F]:
    """Run an :class:`Explorer` with these parameters. CrashCheckError, an AssertionError, at the first
    failure."""
    return Explorer(
        scenario, check, seed=seed, states_per_point=states_per_point, depth=depth, start=start
    ).run()


def replay(
    scenario: Scenario[F],
    check: Check[F],
    path: str,
    *,
    start: Callable[[], MemoryFileSystem] = MemoryFileSystem,
) -> None:
    """Go one path of power cuts again, and check at its end: what the check raises comes out as it is."""
    file_system, facts, run = start(), Facts[F](), scenario
    for step in Step.parse_path(path):
        file_system, facts = _moment_at(run, file_system, facts, step.point)
        file_system, run = crash_state(file_system, step.state), check
    check(file_system, facts)


def _moments(
    run: Scenario[F],
    file_system: MemoryFileSystem,
    facts: Facts[F],
    count: int | None,
    random: Random,
) -> list[_Moment[F]]:
    """The moments before each change and the one after all; or ``count`` of them, each as likely."""
    moments: list[_Moment[F]] = []
    begun = file_system.changes

    def take(point: int, before: str) -> None:
        # One pass, though nobody knows yet how many there will be: the n-th takes the place of one
        # that was taken before with just the chance that makes all of them alike.
        at = len(moments) if count is None or len(moments) < count else random.randrange(point)
        if count is None or at < count:
            moments[at : at + 1] = [_Moment(point, file_system.fork(), facts.fork(), before)]

    def watch(change: Change) -> None:
        take(change.number - begun, str(change))

    _watched(run, file_system, facts, watch)
    take(file_system.changes - begun + 1, _THE_END)
    return moments


def _moment_at(
    run: Scenario[F], file_system: MemoryFileSystem, facts: Facts[F], point: int
) -> tuple[MemoryFileSystem, Facts[F]]:
    begun = file_system.changes
    reached: list[Facts[F]] = []

    def watch(change: Change) -> None:
        if change.number - begun == point:
            # Now, for who unwinds from a power cut may still note something.
            reached.append(facts.fork())
            raise PowerCut(f"change {point} is reached")

    try:
        _watched(run, file_system, facts, watch)
    except PowerCut:
        return file_system.fork(), reached[0]
    ended = file_system.changes - begun + 1
    if ended != point:
        raise ValueError(f"there is no point {point}: the last one is {ended}")
    return file_system, facts


_THE_END: Final = "the end"


def _watched(
    run: Scenario[F],
    file_system: MemoryFileSystem,
    facts: Facts[F],
    watcher: Callable[[Change], None],
) -> None:
    file_system.watcher = watcher
    try:
        run(file_system, facts)
    finally:
        file_system.watcher = None


def _story(cuts: tuple[_Cut, ...]) -> str:
    lines = []
    for cut in cuts:
        # Made anew, for the check has changed the one that it was given.
        left = crash_state(cut.seen, cut.step.state)
        lines.append(f"power cut at {cut.step.point}, before {cut.before}; {cut.step.state} left:")
        lines += [f"    {line}" for line in _differences(cut.seen, left)] or ["    everything"]
    return "\n".join(lines)


def _differences(seen: MemoryFileSystem, left: MemoryFileSystem) -> list[str]:
    lines = []
    there, here = _tree(seen, ""), _tree(left, "")
    for path in sorted(there.keys() | here.keys()):
        if path not in here:
            lines.append(f"{path}: gone")
        elif path not in there:
            lines.append(f"{path}: there, though removed or renamed")
        elif (old := there[path]) != (new := here[path]):
            pairs = enumerate(zip(old, new, strict=False))
            first = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
            lines.append(f"{path}: {len(new)} bytes of {len(old)}, other ones from byte {first} on")
    return lines


def _tree(file_system: MemoryFileSystem, folder: str) -> dict[str, bytes]:
    tree = {}
    for name, is_file, _ in file_system.list_dir(folder or "/"):
        path = f"{folder}/{name}"
        if is_file:
            tree[path] = file_system.read_bytes(path)
        else:
            tree |= {f"{path}/": b"", **_tree(file_system, path)}
    return tree
