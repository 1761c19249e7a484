"""What is wrong is said in one sentence: Spark shows an error with all the frames that it came through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from stratalog.errors import StratalogError

__all__ = ["in_one_sentence", "rows_in_one_sentence"]

P = ParamSpec("P")
T = TypeVar("T")


def in_one_sentence(method: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls, whose errors of ours come without the way inside that they took. What is
    not ours is a bug, and keeps it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except StratalogError as error:
            raise error.with_traceback(None) from None

    return called


def rows_in_one_sentence(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for what a task takes its rows from: they fail while they are taken."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except StratalogError as error:
            raise error.with_traceback(None) from None

    return called
