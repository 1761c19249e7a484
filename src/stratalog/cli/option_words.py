"""Say with the options of the command line what the library says with parameters of Python."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["with_options"]

_OPTIONS: Final = {
    "allow_loss=True": "--allow-loss",
    "control=True": "--control",
    "latest_per_key=True": "--latest-per-key",
    "max_seconds is a number": "--max-seconds is a number",
    "memory_bytes": "--memory",
    ": stop it, or open with read_only=True": ": stop it first",
    "on_damage='skip'": "--skip-damaged",
    "tombstones=True": "--tombstones",
}
_TOPICS: Final = re.compile(r"\btopics='([A-Za-z0-9._-]+)'")
_PARAMETERS: Final = re.compile("|".join(map(re.escape, _OPTIONS)))


def with_options(text: str) -> str:
    """Return a message of the library in which parameters are replaced by the options that set them."""
    text = _PARAMETERS.sub(lambda found: _OPTIONS[found[0]], text)
    return _TOPICS.sub(r"-t \1", text)
