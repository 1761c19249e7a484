"""A process was killed while it truncated a log; the next one deleted the renamed segment without a sync of
the folder and went on; a power cut brought the segment back next to the records written in its place."""

from __future__ import annotations

from stratalog.testing import replay
from tests.crash.driver import new_disk
from tests.crash.scenarios import SCENARIOS


def test_truncated_segment_stays_away_after_a_kill_and_a_power_cut() -> None:
    scenario = SCENARIOS["truncation"]
    replay(scenario.runs(), scenario.check(), "91:killed/19:all-lost", start=new_disk)
