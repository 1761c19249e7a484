"""For all tests: no property has a deadline, and what the long ones counted is told at the end of the run.

A test says ``record_property("counted: power cuts", 1234)``; the numbers of all tests are added up, also
where workers ran them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

# Tests assert behaviour, never time: a machine that is busy with something else is no bug.
settings.register_profile("stratalog", deadline=None)
settings.load_profile("stratalog")

_PREFIX = "counted: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, count in report.user_properties:
            if name.startswith(_PREFIX):
                totals[name.removeprefix(_PREFIX)] += count
    if totals:
        terminalreporter.section("counted in the tests that passed")
        for name, count in sorted(totals.items()):
            terminalreporter.write_line(f"{count:>12,} {name}")
