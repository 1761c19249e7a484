"""What a Python worker of Spark's need not look through after every task."""

from __future__ import annotations

import gc
from functools import cache

__all__ = ["freeze_worker"]


@cache
def freeze_worker() -> None:
    """Spark collects garbage after every task. What lives as long as its worker need not be looked at."""
    gc.freeze()
