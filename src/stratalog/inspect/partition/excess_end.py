"""How a walk ends at a last batch that lies beyond where a clean shutdown left the log.

A module of its own, because it is imported only if there is such a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.errors import CorruptionError
from stratalog.records.columns import WalkEnd

__all__ = ["ExcessBatchEnd"]


@dataclass(frozen=True, slots=True)
class ExcessBatchEnd(WalkEnd):
    """The end of a walk at such a batch; ``excess`` says what is wrong with it."""

    excess: CorruptionError | None = None

    def error(self) -> CorruptionError:
        assert self.excess is not None
        return self.excess
