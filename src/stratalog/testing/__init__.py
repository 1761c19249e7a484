"""The doubles that ship: a clock, a disk in memory that can lose its power, and a disk that fails.

May import everything below ``cli``. Our own tests use them, and so may those of whoever builds on us:
``explore`` cuts the power at every step of a scenario, ``FaultyFileSystem`` fails the n-th call.
"""

from __future__ import annotations

from stratalog.testing.clock import ManualClock
from stratalog.testing.crash import (
    ContentFate,
    CrashPlan,
    CrashPoint,
    CrashState,
    NameFate,
    crash,
    crash_all_kept,
    crash_all_lost,
    crash_planned,
    crash_state,
    crash_states,
    has_unsynced,
    kill,
)
from stratalog.testing.explorer import CrashCheckError, Explorer, Facts, explore, replay
from stratalog.testing.faulty_files import Call, FailedCall, Fault, FaultyFileSystem
from stratalog.testing.machine import Change, ChangeKind, PowerCut
from stratalog.testing.memory_files import MemoryFileSystem

__all__ = [
    "Call",
    "Change",
    "ChangeKind",
    "ContentFate",
    "CrashCheckError",
    "CrashPlan",
    "CrashPoint",
    "CrashState",
    "Explorer",
    "Facts",
    "FailedCall",
    "Fault",
    "FaultyFileSystem",
    "ManualClock",
    "MemoryFileSystem",
    "NameFate",
    "PowerCut",
    "crash",
    "crash_all_kept",
    "crash_all_lost",
    "crash_planned",
    "crash_state",
    "crash_states",
    "explore",
    "has_unsynced",
    "kill",
    "replay",
]
