"""A file system in memory on which something else happens in the middle of an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stratalog.testing import Call, FaultyFileSystem, MemoryFileSystem

__all__ = ["Meddling"]


class Meddling(FaultyFileSystem):
    """A file system that calls ``meddle`` once, after the first call of a kind for a path with a part."""

    def __init__(self, inner: MemoryFileSystem) -> None:
        super().__init__(inner)
        self.memory = inner
        self.at: tuple[Call, str] | None = None
        self.meddle: Callable[[], object] = lambda: None

    def call(self, call: Call, path: str, *given: Any, **names: Any) -> Any:
        result = super().call(call, path, *given, **names)
        if self.at is not None and call is self.at[0] and self.at[1] in path:
            self.at = None
            self.meddle()
        return result
