"""Moved to storage; this name goes with the next change."""

from stratalog.storage.walk_file import *  # noqa: F403
