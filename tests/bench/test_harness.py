"""The harness on cases whose cost is known, because a fake clock says what each call takes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from bench import __main__ as program
from bench import harness, report
from bench.harness import Bar, Case, Result, Skip, Workload


class FakeClock:
    """Time passes only when a call says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def taking(self, *seconds: float, name: str = "ours"):
        """A call that takes these seconds in turn, and then the last of them for ever."""
        left = list(seconds)

        def call() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


@pytest.fixture
def clock():
    return FakeClock()


def make(workload, *, unit="B/s", peer="them", bar=None, name="case", pinned=False):
    return Case(name, "some work", unit, lambda setup: workload, peer, bar, pinned)


def measure(each, clock, rounds=3):
    return harness.run_case(each, rounds=rounds, quick=False, clock=clock)


def test_ratio_of_rates_is_ours_over_theirs(clock):
    work = Workload(clock.taking(1), clock.taking(4, name="them"), amount=100)
    result = measure(make(work, bar=Bar(ratio=4)), clock)
    assert (result.ours, result.theirs, result.ratio) == (100, 25, 4)
    assert result.status == "ok"


def test_ratio_of_seconds_is_theirs_over_ours(clock):
    work = Workload(clock.taking(1), clock.taking(4, name="them"))
    result = measure(make(work, unit="s", bar=Bar(ratio=4.01)), clock)
    assert (result.ours, result.theirs, result.ratio) == (1, 4, 4)
    assert result.status == "missed"


def test_slow_peer_may_do_less_of_the_work(clock):
    work = Workload(clock.taking(1), clock.taking(1, name="them"), amount=100, peer_amount=10)
    assert measure(make(work), clock).ratio == 10


def test_median_ignores_one_slow_round(clock):
    work = Workload(clock.taking(9, 1, 50, 2, 3, 2))  # the first is the warm-up
    result = measure(make(work, unit="s", peer=None), clock, rounds=5)
    assert result.ours_rounds == [1, 50, 2, 3, 2]
    assert result.ours == 2


def test_rounds_are_interleaved_after_the_warm_up(clock):
    work = Workload(clock.taking(1), clock.taking(1, name="them"))
    measure(make(work), clock)
    assert clock.calls[:2] == ["ours", "them"]
    assert clock.calls[2:] == ["ours", "them"] * 3


def test_what_comes_before_a_round_is_done_for_both_sides_and_not_timed(clock):
    before = clock.taking(50, name="before")
    work = Workload(clock.taking(1), clock.taking(4, name="them"), amount=100, before=before)
    result = measure(make(work), clock)
    assert clock.calls == ["before", "ours", "before", "them"] * 4  # the first to warm up
    assert (result.ours, result.theirs) == (100, 25)


def test_case_may_limit_its_rounds(clock):
    each = replace(make(Workload(clock.taking(1)), peer=None), rounds_max=2)
    assert len(measure(each, clock, rounds=9).ours_rounds) == 2


def test_short_call_is_repeated_within_a_round(clock):
    work = Workload(clock.taking(harness.ROUND_SECONDS / 4), amount=1)
    result = measure(make(work, unit="s", peer=None), clock, rounds=1)
    assert result.ours == pytest.approx(harness.ROUND_SECONDS / 4)
    assert len(clock.calls) == 2 + 4


def test_unit_that_is_no_time_takes_the_returned_figure(clock):
    work = Workload(iter([5, 7, 6]).__next__)
    result = measure(make(work, unit="B", peer=None, bar=Bar(at_most=6)), clock)
    assert (result.ours, result.status) == (6, "ok")


@pytest.mark.parametrize(
    ("bar", "status"),
    [
        (Bar(at_least=100), "ok"),
        (Bar(at_least=101), "missed"),
        (Bar(at_most=100), "ok"),
        (Bar(at_most=99), "missed"),
        (None, "measured"),
    ],
)
def test_absolute_bar_judges_our_own_figure(clock, bar, status):
    work = Workload(clock.taking(1), amount=100)
    assert measure(make(work, peer=None, bar=bar), clock).status == status


def test_bar_is_exactly_one_limit():
    for limits in ({}, {"ratio": 1, "at_most": 2}):
        with pytest.raises(ValueError, match="one of"):
            Bar(**limits)


def test_case_that_cannot_run_is_skipped_and_never_passed(clock):
    def prepare(setup):
        raise Skip("no Kafka here")

    each = Case("case", "work", "s", prepare, "Kafka", Bar(ratio=1))
    result = measure(each, clock)
    assert (result.status, result.reason, result.ours) == ("skipped", "no Kafka here", None)
    assert "skipped: no Kafka here" in report.table([result])
    assert harness.exit_code([result], check=False) == 0
    assert harness.exit_code([result], check=True) == 1, "nothing was measured"


def test_missing_peer_module_skips():
    with pytest.raises(Skip, match="no_such_module"):
        harness.need("no_such_module")


def test_broken_case_fails_the_run_and_says_why(clock, capsys):
    def broken():
        raise RuntimeError("boom")

    result = measure(make(Workload(broken), peer=None), clock)
    assert (result.status, result.reason) == ("failed", "RuntimeError: boom")
    assert harness.exit_code([result], check=False) == 1
    assert "boom" in capsys.readouterr().err


def test_named_peer_without_a_call_fails(clock, capsys):
    assert measure(make(Workload(clock.taking(1)), peer="them"), clock).status == "failed"


@pytest.mark.parametrize(
    ("states", "check", "code"),
    [
        (["ok", "measured", "skipped"], True, 0),
        (["ok", "missed"], True, 1),
        (["ok", "missed"], False, 0),
        (["ok", "failed"], False, 1),
        (["skipped"], True, 1),
    ],
)
def test_exit_code(states, check, code):
    results = [Result("n", "w", "s", status) for status in states]
    assert harness.exit_code(results, check=check) == code


def test_folder_and_clean_up_end_with_the_case(clock):
    seen: list[Any] = []

    def prepare(setup):
        (setup.folder / "data").write_bytes(b"x")
        setup.cleanup.callback(seen.append, "closed")
        seen.append(setup.folder)
        return Workload(clock.taking(1))

    measure(Case("case", "work", "s", prepare), clock)
    assert seen[1] == "closed"
    assert not seen[0].exists()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_pinned_case_runs_on_one_core_and_gives_the_others_back(clock):
    before = os.sched_getaffinity(0)
    cores = []

    def ours():
        cores.append(os.sched_getaffinity(0))
        clock.now += 1

    measure(make(Workload(ours), peer=None, pinned=True), clock)
    assert {len(each) for each in cores} == {1}
    assert os.sched_getaffinity(0) == before


def test_two_cases_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(harness, "CASES", {})
    register = harness.case("twin", work="w", unit="s")
    register(lambda setup: Workload(lambda: None))
    with pytest.raises(ValueError, match="twin"):
        register(lambda setup: Workload(lambda: None))


@pytest.fixture
def program_with(monkeypatch, tmp_path):
    """Runs ``python -m bench`` with these cases; answers the exit code and the written JSON."""

    def run(cases, *arguments):
        monkeypatch.setattr(harness, "discover", lambda: {each.name: each for each in cases})
        monkeypatch.setattr(harness, "ROUND_SECONDS", 0)
        path = tmp_path / "out" / "result.json"
        code = program.main([*arguments, "--rounds", "1", "--json", str(path)])
        return code, json.loads(path.read_text()) if path.exists() else None

    return run


def test_program_checks_prints_and_writes(program_with, capsys):
    fast = make(Workload(lambda: None), unit="s", peer=None, bar=Bar(at_most=60), name="fast")
    slow = make(Workload(lambda: None), unit="s", peer=None, bar=Bar(at_most=0), name="slow")
    code, document = program_with([fast, slow], "--check")
    assert code == 1
    assert [each["status"] for each in document["cases"]] == ["ok", "missed"]
    assert document["machine"]["python"]
    assert document["machine"]["cores"] >= 1
    printed = capsys.readouterr().out
    assert "fast: some work" in printed
    assert "≤ 0 ms" in printed
    assert program_with([fast, slow], "--check", "--only", "fa*")[0] == 0
    assert program_with([fast, slow])[0] == 0


def test_program_lists_without_measuring(program_with, capsys):
    def never(setup):
        raise AssertionError("measured")

    assert program_with([Case("one", "work", "s", never)], "--list") == (0, None)
    assert capsys.readouterr().out == "one: work (no bar)\n"


def test_program_refuses_a_pattern_that_matches_nothing(program_with):
    with pytest.raises(SystemExit) as refused:
        program_with([make(Workload(lambda: None))], "--only", "nothing")
    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (5.12e9, "B/s", "5.12 GB/s"),
        (8.2e6, "batches/s", "8.2 M batches/s"),
        (0.0123, "s", "12.3 ms"),
        (2.5, "s", "2.5 s"),
        (64e6, "B", "64 MB"),
        (12, "records/s", "12 records/s"),
    ],
)
def test_figures_are_shown_for_people(figure, unit, text):
    assert harness.shown(figure, unit) == text
