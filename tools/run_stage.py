"""Runs the tests of one stage: ``run_stage.py test|proof|interop|nightly [arguments for pytest]``.

    test      every change; the same cases every time, five minutes on two cores
    proof     the whole sweeps, tests that start several JVMs, and properties with fresh examples
    interop   the tests that need a real Kafka
    nightly   the random tests, with fifty times as many cases

The longer stages draw their cases from a seed, which they print: ``make proof SEED=...`` draws them again.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
#: Memory as a file system, where there is one; and what the tests may need of it at a time.
MEMORY: Final = Path("/dev/shm")  # noqa: S108  a folder of its own is made in it
MEMORY_NEEDED: Final = 3 << 30
SEEDS: Final = 2**32  # Python's hash seed is one of so many
_RANDOM: Final = "scaled or hypothesis"
_ELSEWHERE: Final = "not interop and not fuzz"


class Stage(NamedTuple):
    """Which tests belong to a stage, and how they run."""

    select: str
    is_random: bool = False
    scale: int = 1
    is_parallel: bool = True
    timeout_s: int = 300
    #: Whether files may lie in memory: thousands of syncs cost nothing there.
    in_memory: bool = False


STAGES: Final = {
    "test": Stage("not interop and not nightly and not fuzz and not proof", in_memory=True),
    "proof": Stage(
        f"(proof or {_RANDOM}) and not nightly and {_ELSEWHERE}", is_random=True, timeout_s=1200
    ),
    "interop": Stage("interop", is_parallel=False, timeout_s=900),
    "nightly": Stage(
        f"(nightly or {_RANDOM}) and {_ELSEWHERE}", is_random=True, scale=50, timeout_s=7200
    ),
}


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in STAGES:
        sys.exit(f"usage: run_stage.py {'|'.join(STAGES)} [arguments for pytest]")
    name, *given = arguments
    stage = STAGES[name]
    seed = chosen_seed() if stage.is_random else 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(
        prefix="stratalog-", dir=memory() if stage.in_memory else None, ignore_cleanup_errors=True
    ) as scratch:
        code = subprocess.run(
            command(stage, seed, given),
            cwd=ROOT,
            env={**os.environ, **environment(name, stage, seed), "TMPDIR": scratch},
            check=False,
        ).returncode
    print(
        f"make {name}: {'passed' if code == 0 else 'failed'} in {time.monotonic() - started:.0f} s"
    )
    return code


def chosen_seed() -> int:
    """Return the seed that was asked for, or a new one."""
    given = os.environ.get("STRATALOG_SEED", "")
    if not given:
        return random.SystemRandom().randrange(1, SEEDS)
    if not given.isdecimal() or int(given) >= SEEDS:
        sys.exit(f"SEED={given}: a seed is a number from 0 to {SEEDS - 1}")
    return int(given)


def command(stage: Stage, seed: int, given: Sequence[str]) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-m", stage.select, "--timeout", f"{stage.timeout_s}"]
    if stage.is_parallel:
        words += ["-n", workers(), "--dist", "loadgroup"]
    if stage.is_random:
        words.append(f"--hypothesis-seed={seed}")
    return [*words, *given]


def workers() -> str:
    """Return how many processes run tests: one more than cores, for one of them mostly waits for Java."""
    given = os.environ.get("STRATALOG_JOBS", "auto")
    return str((os.cpu_count() or 1) + 1) if given == "auto" else given


def environment(name: str, stage: Stage, seed: int) -> dict[str, str]:
    return {
        "STRATALOG_STAGE": name if stage.is_random else "test",
        "STRATALOG_SCALE": os.environ.get("STRATALOG_SCALE", f"{stage.scale}"),
        "STRATALOG_SEED": f"{seed}",
        "PYTHONHASHSEED": f"{seed}",
        "PYTHONDONTWRITEBYTECODE": "",  # each worker would compile all tests again
    }


def memory() -> str | None:
    """Return a folder in memory with room enough; None where there is none, for the usual place."""
    try:
        is_large = shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED
    except OSError:
        return None
    return str(MEMORY) if is_large and os.access(MEMORY, os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
