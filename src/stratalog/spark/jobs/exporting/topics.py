"""Which topics an export takes: those that are named or match, and internal ones only by name."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import translate
from typing import Final

from stratalog.inspect.partition.partition_filter import Topics
from stratalog.storage.names import INTERNAL_TOPICS

__all__ = ["topics_pattern"]

_INTERNAL: Final = "|".join(sorted(map(re.escape, INTERNAL_TOPICS)))


def topics_pattern(topics: Topics | None, named: Collection[str] = ()) -> str:
    """The topics as a regular expression: globs match no internal topic, names do. ``named`` are those that
    are asked for in another way, by the paths of their partitions. A pattern and not a list, because topics
    that come later are taken up by the next run."""
    globs = ("*",) if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
    by_name = INTERNAL_TOPICS & {*globs, *named}
    matching = f"(?!(?:{_INTERNAL})$)(?:{'|'.join(map(translate, globs))})"
    return "^(?:" + "|".join([matching, *(f"{re.escape(name)}$" for name in sorted(by_name))]) + ")"
