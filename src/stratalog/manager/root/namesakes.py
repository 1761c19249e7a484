"""Topics of the same name in several log directories that are not one topic.

They come about when a topic is deleted, and created again, without one of its directories. What their
partitions hold has nothing to do with each other, so that they are not shown as one topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stratalog.errors import CorruptionError
from stratalog.storage.formats.kafka_uuid import format_uuid
from stratalog.storage.formats.topic_entries import TopicEntry
from stratalog.types import TopicPartition

__all__ = ["find_namesakes", "namesake_error"]


def find_namesakes(
    entries: Sequence[Mapping[str, TopicEntry]],
    listing: Collection[tuple[TopicPartition, int]],
    hidden: Collection[tuple[str, int]],
) -> dict[str, dict[int, bytes]]:
    """Return the topics that have different ids in the directories that have folders of them: the ids, by
    directory. ``entries`` are those of each directory; ``hidden`` are topics that are deleted."""
    if len(entries) < 2:
        return {}
    ids: dict[str, dict[int, bytes]] = {}
    for name, number in {(each.topic, number) for each, number in listing} - set(hidden):
        entry = entries[number].get(name)
        if entry is not None and entry.topic.topic_id is not None:
            ids.setdefault(name, {})[number] = entry.topic.topic_id
    return {name: each for name, each in ids.items() if len(set(each.values())) > 1}


def namesake_error(name: str, ids: Mapping[int, bytes], roots: Sequence[str]) -> CorruptionError:
    """Return what is said of a topic that has different ids in several directories."""
    listed = ", ".join(f"{format_uuid(ids[number])} in {roots[number]}" for number in sorted(ids))
    return CorruptionError(
        "topic_id", f"topic {name!r} is not one topic: its id is {listed}",
        path=roots[min(ids)],
        advice="open the directories one at a time to read each topic, and move the folders of the one that "
        "is not needed out of its directory",
    )  # fmt: skip
