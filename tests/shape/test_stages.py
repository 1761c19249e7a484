"""Every test belongs to a stage: nothing is proved only on paper because no target selects it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.conftest import ALL_MARKERS
from tools.run_stage import SEEDS, STAGES, chosen_seed, command, environment

ROOT = Path(__file__).parents[2]
SELECTIONS = {name: Expression.compile(stage.select) for name, stage in STAGES.items()}


def stages_of(markers: frozenset[str]) -> list[str]:
    def has(name: str, /, **_: object) -> bool:
        return name in markers

    return [name for name, selected in SELECTIONS.items() if selected.evaluate(has)]


def test_every_collected_test_belongs_to_a_stage(request):
    """All tests of the run are looked at, also those that it leaves out."""
    collected = request.config.stash[ALL_MARKERS]
    assert request.node.nodeid.partition("@")[0] in collected
    lost = [
        test
        for test, markers in collected.items()
        if not stages_of(markers) and "fuzz" not in markers
    ]
    assert lost == []


def test_all_tests_with_spark_go_to_one_worker(request):
    """Where groups are kept together, every one of them carries the name of the group."""
    suffix = "@spark" if request.config.getoption("loadgroup", default=False) else ""
    names = [
        item.nodeid
        for item in request.session.items
        if "spark" in getattr(item, "fixturenames", ())
    ]
    assert [name for name in names if not name.endswith(suffix)] == []


@pytest.mark.parametrize(
    ("markers", "stages"),
    [
        ((), ["test"]),
        (("slow",), ["test"]),
        (("hypothesis",), ["test", "proof", "nightly"]),
        (("scaled",), ["test", "proof", "nightly"]),
        (("proof",), ["proof"]),
        (("proof", "scaled"), ["proof", "nightly"]),
        (("interop",), ["interop"]),
        (("interop", "hypothesis"), ["interop"]),
        (("interop", "proof"), ["interop"]),
        (("nightly",), ["nightly"]),
        (("nightly", "scaled"), ["nightly"]),
        (("fuzz",), []),
    ],
)
def test_markers_choose_the_stage(markers, stages):
    assert stages_of(frozenset(markers)) == stages


def test_pytest_alone_runs_the_tests_of_make_test():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    options = project["tool"]["pytest"]["ini_options"]["addopts"]
    assert f"-m {STAGES['test'].select}" in options


def test_ci_runs_every_stage_but_the_nightly_one():
    text = (ROOT / ".ci/run").read_text()
    found = re.search(r"^for target in (.*); do$", text, re.MULTILINE)
    assert found is not None
    assert set(found[1].split()) == {"check", *STAGES} - {"nightly"}


@pytest.mark.parametrize("name", STAGES)
def test_make_runs_the_stage(name):
    assert f"$(STAGE) {name} $(ARGS)" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", ["proof", "nightly"])
def test_a_seed_that_was_printed_can_be_given(name, monkeypatch):
    monkeypatch.setenv("STRATALOG_SEED", "1234")
    assert chosen_seed() == 1234
    assert "--hypothesis-seed=1234" in command(STAGES[name], 1234, [])
    given = environment(name, STAGES[name], 1234)
    assert (given["STRATALOG_SEED"], given["STRATALOG_STAGE"]) == ("1234", name)


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", str(SEEDS)])
def test_a_seed_that_is_none_is_refused(seed, monkeypatch):
    monkeypatch.setenv("STRATALOG_SEED", seed)
    with pytest.raises(SystemExit, match=f"SEED={seed}"):
        chosen_seed()


PROGRAM = """
import sys
import tests.conftest
from hypothesis import core, given, strategies as st

for name in sys.argv[2:]:
    __import__(name)
core.global_force_seed = int(sys.argv[1])

@given(st.integers(), st.text(), st.lists(st.integers()))
def drawn(number, text, numbers):
    print(ascii((number, text, numbers)))

drawn()
"""


def drawn(stage: str, seed: int, *imported: str) -> str:
    """Return the examples of a property, in a process that has also imported these modules."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed), *imported],
        cwd=ROOT,
        env={**os.environ, **environment(stage, STAGES[stage], seed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_make_test_draws_the_same_examples_whatever_was_imported_before():
    examples = drawn("test", 1)
    assert examples.count("\n") > 50
    assert examples == drawn("test", 2, "stratalog.manager.logs", "tests.crash.scenarios")


def test_make_proof_draws_by_the_seed():
    examples = drawn("proof", 1)
    assert examples == drawn("proof", 1)
    assert examples != drawn("proof", 2)
