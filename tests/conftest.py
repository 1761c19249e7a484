"""What holds for all tests: how properties draw their examples, which worker runs Spark, and what is counted.

``make test`` draws the same examples every time, whichever tests run and in whatever order; the longer stages
draw fresh ones from the seed that they print (see ``tests/scale.py``). All tests that need Spark go to one
worker, so that one Java serves them all.

A test says ``record_property("counted: power cuts", 1234)``; the numbers of all tests are added up, also
where workers ran them, and printed at the end together with the number of tests.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.scale import IS_QUICK, SCALE, SEED, STAGE
from tests.spark_session import endpoint, make_log, spark

__all__ = ["endpoint", "make_log", "spark"]

# Tests assert behaviour, never time: a machine that is busy with something else is no bug.
settings.register_profile(
    "stratalog",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    derandomize=IS_QUICK,
    print_blob=True,
)
settings.load_profile("stratalog")
if IS_QUICK:
    # Hypothesis takes constants out of every module that happens to be imported, so that examples would
    # depend on the tests that ran before in the same process, and on every line of the source.
    providers._get_local_constants = lambda: providers._local_constants

# A shell starts background jobs with interrupts ignored, and programs that tests start and interrupt would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PREFIX = "counted: "
_EXAMPLES = re.compile(r"(\d+) passing,")

#: The markers of all tests that were found; ``tests/shape/test_stages.py`` reads them.
ALL_MARKERS = pytest.StashKey[dict[str, frozenset[str]]]()


@pytest.hookimpl(tryfirst=True)  # before tests are left out, and before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[ALL_MARKERS] = {
        item.nodeid: frozenset(mark.name for mark in item.iter_markers()) for item in items
    }
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if config.getoption("loadgroup", default=False):
                # xdist 3.8 writes the group into an attribute that pytest does not read any more.
                item._id = item.id.parse(f"{item.nodeid}@spark")


def pytest_report_header() -> list[str]:
    return [] if IS_QUICK else [_seed_line()]


def _seed_line() -> str:
    return f"stage {STAGE}, scale {SCALE}, seed {SEED}: make {STAGE} SEED={SEED} draws the same cases again"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.when == "call" and hasattr(item, "hypothesis_statistics"):
        examples = sum(map(int, _EXAMPLES.findall(item.hypothesis_statistics)))
        item.user_properties.append((f"{_PREFIX}examples of properties", examples))
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            totals["tests passed"] += 1
            for name, count in report.user_properties:
                if name.startswith(_PREFIX):
                    totals[name.removeprefix(_PREFIX)] += count
    if not IS_QUICK:
        terminalreporter.write_line(_seed_line())
    if not totals:
        return
    terminalreporter.section("counted in the tests that passed")
    lines = [f"{count:>12,} {name}" for name, count in sorted(totals.items())]
    for line in lines:
        terminalreporter.write_line(line)
    if "STRATALOG_COUNTS" in os.environ:
        with Path(os.environ["STRATALOG_COUNTS"]).open("a") as counts:
            print(*lines, sep="\n", file=counts)
