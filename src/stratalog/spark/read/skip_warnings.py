"""The warnings about what a read leaves out: the same lines from tasks and from the driver."""

from __future__ import annotations

import logging
from typing import Final

from stratalog.inspect.file.skipped_damage import SkippedDamage
from stratalog.inspect.latest.latest_reader import LeftOut
from stratalog.types import TopicPartition

__all__ = ["warn_of_left_out", "warn_of_skipped"]

#: A task has no other way to say what it left out: Spark keeps this in the executors' logs.
_LOGGER: Final = logging.getLogger("stratalog.spark")


def warn_of_skipped(topic_partition: TopicPartition, skipped: SkippedDamage) -> None:
    """Log what was left out: partition, file, position, and the offset at which reading resumes."""
    _LOGGER.warning("%s: left out: %s", topic_partition, skipped)


def warn_of_left_out(topic_partition: TopicPartition, left_out: LeftOut) -> None:
    """Log how many records have no key, and how many of the newest were removed before they were read."""
    if left_out.keyless:
        _LOGGER.warning("%s: left out: %d records without a key", topic_partition, left_out.keyless)
    if left_out.missing:
        _LOGGER.warning(
            "%s: %d of the newest records were removed before they were read",
            topic_partition,
            left_out.missing,
        )
