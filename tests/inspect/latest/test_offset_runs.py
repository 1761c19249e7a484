"""Runs of offsets that are merged: all of them, in order, with little memory."""

from __future__ import annotations

from array import array
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.inspect.latest import offset_runs
from stratalog.inspect.latest.offset_runs import OffsetRuns
from stratalog.inspect.latest.scratch import ScratchFiles


def merged(runs: list[list[int]], memory_bytes: int) -> list[int]:
    with closing(ScratchFiles()) as files:
        all_runs = OffsetRuns(files, memory_bytes)
        for run in runs:
            all_runs.add(array("q", run))
        return all_runs.merged().tolist()


@given(st.lists(st.lists(st.integers(0, 2**63 - 1)).map(sorted), max_size=12), st.integers(2, 5))
def test_runs_are_merged_in_order(runs, read_min):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_runs, "_READ_MIN", read_min)
        found = merged(runs, 0)
    assert found == sorted(offset for run in runs for offset in run)


def test_many_runs_are_merged_a_few_at_a_time():
    runs = [list(range(number, 20_000, 50)) for number in range(50)]
    assert merged(runs, 64 << 10) == list(range(20_000))
