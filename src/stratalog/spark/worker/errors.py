"""Errors without tracebacks: Spark shows an error with all the frames that it came through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from stratalog.errors import StratalogError

__all__ = ["rows_without_traceback", "without_traceback"]

P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method that Spark calls: our errors leave it without their traceback. Any other exception is a
    bug, and keeps its traceback."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except StratalogError as error:
            raise error.with_traceback(None) from None

    return called


def rows_without_traceback(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Wrap an iterator of rows in the same way: it fails while a task takes rows from it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except StratalogError as error:
            raise error.with_traceback(None) from None

    return called
