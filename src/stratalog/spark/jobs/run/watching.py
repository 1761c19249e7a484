"""How far a job of Spark's is, asked from beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stratalog.types import Progress

__all__ = ["fraction_done", "ticking", "watched"]

_EVERY_SECONDS: Final = 0.2


@contextmanager
def watched(
    context: Any, group: str, name: str, total_bytes: int, progress: Progress | None
) -> Iterator[None]:
    """Jobs that are started within belong to the group, and ``progress`` is told how many bytes are done."""
    context.setJobGroup(group, f"stratalog {name}", interruptOnCancel=True)
    try:
        if progress is None or not total_bytes:
            yield
            return
        tell = progress
        with ticking(lambda: tell(int(total_bytes * fraction_done(context, group)))):
            yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


def fraction_done(context: Any, group: str) -> float:
    """How many of the tasks of a group's jobs are finished; tasks are planned to be about equally large."""
    tracker = context.statusTracker()
    tasks = finished = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                tasks += found.numTasks
                finished += found.numCompletedTasks
    return finished / tasks if tasks else 0.0


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call ``tick`` a few times a second from a thread of its own."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(_EVERY_SECONDS):
            try:
                tick()
            except Exception:  # noqa: BLE001  # a session that ends meanwhile; progress is no result
                return

    thread = threading.Thread(target=run, name="stratalog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
