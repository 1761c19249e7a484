"""Work on several partitions at once: most of it waits for the disk, or copies outside Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")
Each = TypeVar("Each")


def side_by_side(function: Callable[[Each], T], items: Iterable[Each], threads: int) -> list[T]:
    """Return the results of a function for each item. One thread takes them in order and stops at the first
    error; with several, those that were begun are finished first."""
    listed = list(items)
    if min(threads, len(listed)) <= 1:
        return [function(each) for each in listed]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(listed)), "stratalog-commit") as pool:
        begun = [pool.submit(function, each) for each in listed]
        try:
            return [each.result() for each in begun]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
