"""Upgrade partitions of Kafka 0.7 into a new log directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import UsageError
from stratalog.manager.logs import open_logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.rewrite.upgrade_v07 import UpgradedV07, upgrade_v07
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.types import TopicPartition

__all__ = ["upgrade_v07_into"]


def upgrade_v07_into(
    directory: str,
    sources: Mapping[TopicPartition, Sequence[str]],
    options: RewriteOptions | None = None,
    *,
    file_system: FileSystem | None = None,
) -> Iterator[tuple[TopicPartition, UpgradedV07]]:
    """Upgrade partitions, given by their ``.kafka`` files in order, into a log directory that is new or
    empty. Yield what was written for each. UsageError if the directory holds anything."""
    files = file_system or OsFileSystem()
    if os.path.isdir(directory) and files.list_dir(directory):
        raise UsageError(f"{directory} is not empty: name a new directory")
    chosen = options or RewriteOptions()
    limits = chosen.limits(SYSTEM_CLOCK)
    configs = dict(chosen.configs)
    with open_logs(directory, file_system=files) as logs:
        for topic in sorted({each.topic for each in sources}):
            numbers = [each.partition for each in sources if each.topic == topic]
            logs.create(topic, max(numbers) + 1, configs)
        for each, paths in sorted(sources.items()):
            log = logs.partition(each.topic, each.partition)
            yield each, upgrade_v07(log, files, paths, limits)
