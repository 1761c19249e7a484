"""The warning about damage that a read leaves out: the same line from tasks and from the driver."""

from __future__ import annotations

import logging
from typing import Final

from stratalog.inspect.file.skipped_damage import SkippedDamage
from stratalog.types import TopicPartition

__all__ = ["warn_of_skipped"]

#: A task has no other way to say what it left out: Spark keeps this in the executors' logs.
_LOGGER: Final = logging.getLogger("stratalog.spark")


def warn_of_skipped(place: TopicPartition, skipped: SkippedDamage) -> None:
    """Log what was left out: partition, file, position, and the offset at which reading resumes."""
    _LOGGER.warning("%s: left out: %s", place, skipped)
