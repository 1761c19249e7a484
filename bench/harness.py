"""Cases, and how they are measured.

A case's function is its set-up: it runs once and returns a :class:`Workload`. Ours and the peer's call
are then timed in interleaved rounds, so that a machine that grows warm or busy slows both, and the
medians are compared. A ratio is always "how many times as fast as the peer", whatever the unit.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Call = Callable[[], object]
Clock = Callable[[], float]

ROUND_SECONDS = 0.1  # a call that is shorter is repeated within a round until it is about this long
REPEATS_MAX = 10_000
QUICK_DIVISOR = 16


class Skip(Exception):  # noqa: N818 - it is not an error
    """Raised by a set-up when its case cannot run here; the text says why."""


def shown(figure: float, unit: str) -> str:
    """A figure for people: 5.1 GB/s, 8.2 M records/s, 12.3 ms."""
    if unit == "s":
        return f"{figure * 1e3:.4g} ms" if figure < 1 else f"{figure:.4g} s"
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if figure >= factor:
            space = "" if unit.startswith("B") else " "
            return f"{figure / factor:.3g} {prefix}{space}{unit}"
    return f"{figure:.3g} {unit}"


@dataclass(frozen=True)
class Bar:
    """What a case must reach; exactly one of the three is given."""

    ratio: float | None = None  # at least so many times as fast as the peer
    at_least: float | None = None  # of the unit: 5e9 with unit "B/s"
    at_most: float | None = None  # of the unit: 0.15 with unit "s"

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.ratio, self.at_least, self.at_most)) != 1:
            raise ValueError("a bar is one of ratio, at_least, at_most")

    def is_met(self, figure: float, ratio: float | None) -> bool:
        if self.ratio is not None:
            return ratio is not None and ratio >= self.ratio
        if self.at_least is not None:
            return figure >= self.at_least
        return self.at_most is not None and figure <= self.at_most

    def text(self, unit: str) -> str:
        if self.ratio is not None:
            return f"≥ {self.ratio:.3g} ×"
        if self.at_least is not None:
            return f"≥ {shown(self.at_least, unit)}"
        return f"≤ {shown(self.at_most or 0.0, unit)}"


@dataclass(frozen=True)
class Workload:
    """What is timed. ``amount`` is how much of the unit one call does (bytes, records); a slow peer may
    do less, ``peer_amount``. With a unit that is neither a rate nor seconds, the calls return the figure.
    ``before`` is called ahead of each round of either side, and not timed.
    """

    ours: Call
    peer: Call | None = None
    amount: float = 1
    peer_amount: float | None = None
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Setup:
    """What a case's function is given. The folder and what is entered on the stack end with the case."""

    folder: Path
    quick: bool
    cleanup: ExitStack

    def scaled(self, amount: int) -> int:
        return max(1, amount // QUICK_DIVISOR) if self.quick else amount


@dataclass(frozen=True)
class Case:
    name: str
    work: str
    unit: (
        str  # "B/s", "records/s" (more is better), "s" or a plain unit such as "B" (less is better)
    )
    prepare: Callable[[Setup], Workload]
    peer: str | None = None
    bar: Bar | None = None
    pinned: bool = True  # on one core while measuring
    rounds_max: int | None = None  # for a peer that takes its time


@dataclass(frozen=True)
class Result:
    name: str
    work: str
    unit: str
    status: str  # ok, missed, measured (no bar), skipped, failed
    ours: float | None = None
    peer: str | None = None
    theirs: float | None = None
    ratio: float | None = None
    bar: str | None = None
    reason: str | None = None
    ours_rounds: list[float] = field(default_factory=list)
    peer_rounds: list[float] = field(default_factory=list)


CASES: dict[str, Case] = {}


def case(
    name: str,
    *,
    work: str,
    unit: str,
    peer: str | None = None,
    bar: Bar | None = None,
    pinned: bool = True,
    rounds_max: int | None = None,
) -> Callable[[Callable[[Setup], Workload]], Callable[[Setup], Workload]]:
    """Registers the decorated set-up as a case."""

    def register(prepare: Callable[[Setup], Workload]) -> Callable[[Setup], Workload]:
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        if bar is not None and bar.ratio is not None and peer is None:
            raise ValueError(f"{name}: a ratio needs a peer")
        CASES[name] = Case(name, work, unit, prepare, peer, bar, pinned, rounds_max)
        return prepare

    return register


def discover(folder: Path = Path(__file__).parent) -> dict[str, Case]:
    for path in sorted(folder.glob("cases_*.py")):
        importlib.import_module(f"bench.{path.stem}")
    return CASES


def need(module: str) -> Any:
    """A peer's module, or the case is skipped."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Skip(f"{module} cannot be imported: {error}") from error


# Measuring.


def run_case(each: Case, *, rounds: int, quick: bool, clock: Clock = time.perf_counter) -> Result:
    facts: dict[str, Any] = {"name": each.name, "work": each.work, "unit": each.unit}
    facts |= {"peer": each.peer, "bar": each.bar.text(each.unit) if each.bar else None}
    try:
        with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as name, ExitStack() as cleanup:
            work = each.prepare(Setup(Path(name), quick, cleanup))
            if (work.peer is None) != (each.peer is None):
                raise ValueError("the case names a peer, or its workload has one, but not both")
            with on_one_core(each.pinned), without_collections():
                rounds = min(rounds, each.rounds_max or rounds)
                ours, theirs = interleave(work, each.unit, rounds, clock)
    except Skip as skip:
        return Result(**facts, status="skipped", reason=str(skip))
    except Exception as error:  # noqa: BLE001 - one broken case does not hide the others
        traceback.print_exc()
        return Result(**facts, status="failed", reason=f"{type(error).__name__}: {error}")
    figure = median(ours)
    peer_figure = median(theirs) if theirs else None
    ratio = None if peer_figure is None else compare(figure, peer_figure, each.unit)
    status = "measured"
    if each.bar is not None:
        status = "ok" if each.bar.is_met(figure, ratio) else "missed"
    facts |= {"ours": figure, "theirs": peer_figure, "ratio": ratio, "status": status}
    return Result(**facts, ours_rounds=ours, peer_rounds=theirs)


def interleave(
    work: Workload, unit: str, rounds: int, clock: Clock
) -> tuple[list[float], list[float]]:
    """Ours, the peer's, ours, the peer's, ...; after a warm-up of each that is not counted."""
    peer_amount = work.amount if work.peer_amount is None else work.peer_amount
    sides = [(work.ours, work.amount)] + ([(work.peer, peer_amount)] if work.peer else [])
    before = work.before or _nothing
    repeats = [warm_up(call, before, clock) if is_timed(unit) else 1 for call, _ in sides]
    figures: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, (call, amount) in enumerate(sides):
            before()
            figures[side].append(one_round(call, amount, unit, repeats[side], clock))
    return figures[0], figures[1]


def is_timed(unit: str) -> bool:
    return unit == "s" or unit.endswith("/s")


def _nothing() -> None:
    return


def warm_up(call: Call, before: Callable[[], object], clock: Clock) -> int:
    """How often to repeat the call within a round. A long call is made only once here."""
    seconds = 0.0
    for _ in range(2):
        if seconds < ROUND_SECONDS:
            before()
            started = clock()
            call()
            seconds = clock() - started
    return min(REPEATS_MAX, max(1, math.ceil(ROUND_SECONDS / max(seconds, 1e-9))))


def one_round(call: Call, amount: float, unit: str, repeats: int, clock: Clock) -> float:
    if not is_timed(unit):
        figure = call()
        assert isinstance(figure, int | float), f"with unit {unit} a call returns the figure"
        return float(figure)
    started = clock()
    for _ in range(repeats):
        call()
    seconds = max(clock() - started, 1e-9) / repeats
    return seconds if unit == "s" else amount / seconds


def compare(figure: float, peer_figure: float, unit: str) -> float:
    """How many times better ours is: more of a rate, less of anything else."""
    best, other = (figure, peer_figure) if unit.endswith("/s") else (peer_figure, figure)
    return best / other if other else math.inf


@contextmanager
def on_one_core(pinned: bool) -> Iterator[None]:
    if not pinned or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def without_collections() -> Iterator[None]:
    """Garbage is collected before, and not in the middle of somebody's round."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run_cases(
    cases: Sequence[Case], *, rounds: int, quick: bool, clock: Clock = time.perf_counter
) -> list[Result]:
    results = []
    for each in cases:
        print(f"measuring {each.name}", file=sys.stderr, flush=True)
        results.append(run_case(each, rounds=rounds, quick=quick, clock=clock))
    return results


def exit_code(results: Sequence[Result], *, check: bool) -> int:
    """A case that broke is always a failure; a missed bar, and nothing measured at all, under --check."""
    states = {each.status for each in results}
    if "failed" in states:
        return 1
    nothing = not states & {"ok", "missed", "measured"}
    return 1 if check and ("missed" in states or nothing) else 0
