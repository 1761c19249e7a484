"""A topic that exists: its configs after a change, and whether it is as it was to be created."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stratalog.errors import UsageError
from stratalog.storage.formats.topic_entries import Topic
from stratalog.storage.log_config import LogConfig

__all__ = ["altered_config", "check_same_topic"]


def altered_config(config: LogConfig, changes: Mapping[str, object | None]) -> LogConfig:
    """Return the configs with some of them changed, or reset to their defaults (None). UsageError if a name
    or a value is wrong."""
    kept: dict[str, object] = dict(config.overrides())
    seen: set[str] = set()
    for given, value in changes.items():
        name = LogConfig.name_of(given)
        if name in seen:
            raise UsageError(f"{name} is given twice")
        seen.add(name)
        kept.pop(name, None)
        if value is not None:
            kept[name] = value
    return LogConfig.of(kept)


def check_same_topic(
    topic: Topic, missing: Collection[int], partitions: int | None, config: LogConfig
) -> None:
    """Raise UsageError if a topic is not as it was to be created: ``missing`` are its partitions that are
    not in the open directories, ``config`` has the configs that were given."""
    wrong = []
    count = topic.partition_count + len(missing)
    if partitions is not None and partitions != count:
        wrong.append(f"it has {count} partitions, not {partitions!r}")
    wrong += [
        f"{name} is {topic.config.text(name)}, not {config.text(name)}"
        for name in sorted(config.given)
        if topic.config.text(name) != config.text(name)
    ]
    if wrong:
        raise UsageError(f"topic {topic.name!r} exists, and differs: {'; '.join(wrong)}")
