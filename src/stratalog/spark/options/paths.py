"""Which directories a read is about: one, several, or those that match a pattern."""

from __future__ import annotations

import glob
import json
import os
import re

from stratalog.errors import UsageError
from stratalog.storage.files.object_store import is_uri

__all__ = ["local_path", "parse_paths"]


def parse_paths(path: str | None, paths: str | None) -> tuple[str, ...]:
    """The directories that ``load`` was given: one, several with commas between them as in Kafka's
    ``log.dirs``, or Spark's own list of several. Patterns are resolved here, on the driver."""
    given: list[str] = []
    if path is not None:
        given += [part.strip() for part in path.split(",") if part.strip()]
    if paths is not None:
        try:
            listed = json.loads(paths)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise UsageError(f'paths={paths!r} is not a JSON list such as ["one", "two"]')
        given += listed
    if not given:
        raise UsageError(
            'no directory to read: .load("path/to/the/logs"); a table of this format is created with its '
            "path, and without a list of columns: the option columns chooses"
        )
    found: list[str] = []
    for each in given:
        found += _resolved(local_path(each))
    return tuple(dict.fromkeys(found))


def local_path(path: str) -> str:
    """A path without ``file:``, as a table's location has it; others as they are."""
    return re.sub(r"^file:(?://)?(?=/)", "", path, flags=re.IGNORECASE)


def _resolved(path: str) -> list[str]:
    if is_uri(path):
        return [path]
    if "\0" in path:
        raise UsageError(f"{path!r} is no path")
    # Executors work in folders of their own: what a path means is said by the driver.
    path = os.path.abspath(path)
    if glob.escape(path) == path or os.path.lexists(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise UsageError(f"nothing matches {path!r}")
    return found
