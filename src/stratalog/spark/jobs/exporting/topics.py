"""Which topics an export takes: those that are named or match, and internal ones only by name."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from stratalog.inspect.partition.partition_filter import Topics, topics_regex
from stratalog.storage.names import INTERNAL_TOPICS

__all__ = ["topics_pattern"]

_INTERNAL: Final = "|".join(sorted(map(re.escape, INTERNAL_TOPICS)))


def topics_pattern(topics: Topics | None, named: Collection[str] = ()) -> str:
    """Return the topics as a regular expression: globs match no internal topic, names do. ``named`` are
    topics that are asked for by the paths of their partitions. A regular expression and not a list, because
    the next run takes up topics that are created later."""
    globs = ("*",) if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
    by_name = INTERNAL_TOPICS & {*globs, *named}
    matching = f"(?!(?:{_INTERNAL})$){topics_regex(globs)}"
    return "^(?:" + "|".join([matching, *(f"{re.escape(name)}$" for name in sorted(by_name))]) + ")"
