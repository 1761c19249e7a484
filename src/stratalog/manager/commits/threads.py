"""Several partitions at once: most of the work is waiting for the disk, or copying outside Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")
Each = TypeVar("Each")


def side_by_side(function: Callable[[Each], T], items: Iterable[Each], threads: int) -> list[T]:
    """What the function gives for each item. With one thread they are taken in their order, and the first
    error is the last thing that happens; with several, those that were begun are finished first."""
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
