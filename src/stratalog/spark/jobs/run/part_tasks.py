"""Run a job over parts of files: what counting and verifying share.

The files of a job are numbered. A file that cannot be read is reported by its number, as a value: the other
files of the same task go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from stratalog.errors import StratalogError
from stratalog.spark.jobs.run.file_parts import FilePart, pack
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.run_tasks import run_tasks
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.storage.files.filesystem import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["FailedPart", "run_parts", "work_on_parts"]


class _Settings(Protocol):
    @property
    def logs(self) -> LogPaths: ...


class _NumberedPart(Protocol):
    """A part of a file that the job knows by its number."""

    @property
    def number(self) -> int: ...
    @property
    def part(self) -> FilePart: ...


class FailedPart(NamedTuple):
    """The number of a file that cannot be read, and why."""

    number: int
    error: StratalogError


Settings = TypeVar("Settings", bound=_Settings)
Part = TypeVar("Part", bound=_NumberedPart)
Found = TypeVar("Found")

#: What a task does with one part. Other processes can import it.
PartWork = Callable[[Settings, Part, FileSystem], Found]


def run_parts(
    spark: SparkSession,
    work: PartWork[Settings, Part, Found],
    settings: Settings,
    parts: Sequence[Part],
    task_bytes: int,
    *,
    name: str,
    progress: Progress | None,
) -> list[Found | FailedPart]:
    """Work on all parts in tasks of about ``task_bytes``, and return what was found in each."""
    tasks = pack(parts, lambda each: each.part.size_bytes, task_bytes)
    with in_plain_words():
        answers = run_tasks(
            spark,
            partial(work_on_parts, work, settings),
            tasks,
            name=name,
            total_bytes=sum(each.part.size_bytes for each in parts),
            progress=progress,
        )
    return [each for answer in answers for each in answer]


def work_on_parts(
    work: PartWork[Settings, Part, Found], settings: Settings, parts: Sequence[Part]
) -> list[Found | FailedPart]:
    """Work on the parts of one task."""
    file_system = settings.logs.file_system
    found: list[Found | FailedPart] = []
    for each in parts:
        try:
            found.append(work(settings, each, file_system))
        except StratalogError as error:
            found.append(FailedPart(each.number, error))
    return found
