"""Errors that cross from a task to the driver, and errors of Spark's own: each becomes one sentence.

An error of ours is made of what it carries, which Python's pickle does not know how to put back; so it goes
as plain values and is made anew. Spark's come with all the frames of Java that they passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog import errors
from stratalog.errors import (
    CorruptionError,
    LockedError,
    OffsetOutOfRangeError,
    StorageError,
    StratalogError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OnError", "Refused", "in_plain_words", "tell"]

OnError = Callable[[StratalogError], None]

#: ``stratalog.errors.UsageError: no topic …``, as the last line of a traceback has it.
_OURS: Final = re.compile(r"^(?:.*\s)?stratalog\.errors\.(\w+): (.*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
#: ``: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed …``
_JAVA: Final = re.compile(r"^:? ?((?:[a-z]\w*\.)+[A-Z][\w$]*): (.*)$")
#: Exceptions of Java's that say that something was asked for which cannot be.
_USAGE: Final = re.compile("Analysis|Parse|IllegalArgument|ClassNotFound|AlreadyExists|Unsupported")
_CONDITION: Final = re.compile(r"^\[([A-Z_.0-9]+)\]\s*")


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of ours, in values that any process can read."""

    kind: str
    text: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, error: StratalogError) -> Refused:
        names: tuple[str, ...] = ()
        if isinstance(error, CorruptionError):
            names = ("reason", "detail", "position", "path", "advice")
        elif isinstance(error, StorageError):
            names = ("detail", "path", "errno")
        elif isinstance(error, OffsetOutOfRangeError):
            names = ("offset", "start", "end")
        return cls(type(error).__name__, str(error), {each: getattr(error, each) for each in names})

    def error(self) -> StratalogError:
        """The error, as it was."""
        kind = getattr(errors, self.kind, StratalogError)
        values = dict(self.values)
        if issubclass(kind, CorruptionError):
            return kind(values.pop("reason"), values.pop("detail"), **values)
        if issubclass(kind, StorageError):
            return kind(values.pop("detail"), **values)
        if issubclass(kind, OffsetOutOfRangeError):
            return kind(**values)
        made: StratalogError = kind(self.text)
        return made


def tell(error: StratalogError, on_error: OnError | None) -> None:
    """Hand an error over, or raise it where nobody takes it."""
    if on_error is None:
        raise error
    on_error(error)


@contextmanager
def in_plain_words() -> Iterator[None]:
    """What Spark raises within comes out as an error of ours, in one sentence."""
    try:
        yield
    except StratalogError:
        raise
    except Exception as error:
        plain = _plain(error)
        if plain is None:
            raise
        raise plain from None


def _plain(error: Exception) -> StratalogError | None:
    """None where it is not Spark's."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    # A chain of causes ends with the first: the last that is said is where it came from.
    ours = _OURS.findall(text)
    if ours:
        return _ours(*ours[-1])
    python = _PYTHON.findall(text)
    if python:
        return StorageError(": ".join(python[-1]), path="Spark")
    kind, said = _first_sentence(text) or (type(error).__name__, type(error).__name__)
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    is_usage = isinstance(error, AnalysisException | ParseException | IllegalArgumentException)
    if is_usage or _USAGE.search(kind):
        return UsageError(said)
    return StorageError(said, path="Spark")


def _first_sentence(text: str) -> tuple[str, str] | None:
    """What Spark says first, and the class of Java's that says it where that is named."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("An error occurred while calling"):
            continue
        match = _JAVA.match(line)
        kind, said = ("", line.strip()) if match is None else (match[1], match[2])
        return kind, _CONDITION.sub("", said).strip()
    return None


def _ours(kind: str, text: str) -> StratalogError:
    found = getattr(errors, kind, StratalogError)
    if issubclass(found, StorageError):
        path, colon, detail = text.partition(": ")
        kept = LockedError if issubclass(found, LockedError) else StorageError
        return kept(detail if colon else text, path=path if colon else "")
    return UsageError(text) if issubclass(found, UsageError) else StratalogError(text)
