"""How much a test tries, and from which seed.

The same test runs in three stages. ``make test`` tries few cases, chosen well, and the same ones every time.
``make proof`` runs the whole sweeps, and draws fresh cases from a seed that it prints. ``make nightly`` does
the same with ``SCALE`` times as many cases. ``make proof SEED=...`` draws the cases of another run again.
"""

from __future__ import annotations

import os
from typing import TypeVar

Size = TypeVar("Size")

#: "test", "proof" or "nightly".
STAGE = os.environ.get("STRATALOG_STAGE", "test")
#: How many times the usual number of cases.
SCALE = int(os.environ.get("STRATALOG_SCALE", "1"))
#: What the random cases of this run are drawn from; 0 in ``make test``.
SEED = int(os.environ.get("STRATALOG_SEED", "0"))

IS_QUICK = STAGE == "test"


def sized(quick: Size, full: Size) -> Size:
    """Choose between what ``make test`` has time for and the whole of it."""
    return quick if IS_QUICK else full


def fresh(number: int) -> int:
    """Return a seed of this run for a case: the number itself in ``make test``, another one for each
    ``SEED``. It stands for the same case in every stage, so that a failure can be repeated by it alone."""
    return number + (SEED << 32)
