"""Errors of tasks and of Spark itself, as errors of ours on the driver.

Spark's errors come with all the Java frames that they passed; what is left of them is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from stratalog import errors
from stratalog.errors import (
    LockedError,
    StorageError,
    StratalogError,
    UsageError,
)

__all__ = ["SPARK", "OnError", "in_plain_words", "tell"]

OnError = Callable[[StratalogError], None]

#: What an error of Spark's own has for a path.
SPARK: Final = "Spark"


#: ``stratalog.errors.UsageError: no topic …``, as the last line of a traceback has it.
_OURS: Final = re.compile(r"^(?:.*\s)?stratalog\.errors\.(\w+): (.*)$", re.MULTILINE)
#: The note of a commit that failed after its decision.
_PROMISE: Final = re.compile(r"^(the commit (?:is decided|succeeded): .*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
#: ``: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed …``
_JAVA: Final = re.compile(r"^:? ?((?:[a-z]\w*\.)+[A-Z][\w$]*): (.*)$")
#: Exceptions of Java's that say that something was asked for which cannot be.
_USAGE: Final = re.compile("Analysis|Parse|IllegalArgument|ClassNotFound|AlreadyExists|Unsupported")
_CONDITION: Final = re.compile(r"^\[([A-Z_.0-9]+)\]\s*")


def tell(error: StratalogError, on_error: OnError | None) -> None:
    """Call ``on_error`` with an error; raise the error if there is no ``on_error``."""
    if on_error is None:
        raise error
    on_error(error)


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Raise what Spark raises within as an error of ours, with one sentence."""
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
        kind, said = ours[-1]
        promises = _PROMISE.findall(text)
        return _ours(kind, f"{said}; {promises[-1]}" if promises else said)
    python = _PYTHON.findall(text)
    if python:
        return StorageError(": ".join(python[-1]), path=SPARK)
    kind, said = _first_sentence(text) or (type(error).__name__, type(error).__name__)
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    is_usage = isinstance(error, AnalysisException | ParseException | IllegalArgumentException)
    if is_usage or _USAGE.search(kind):
        return UsageError(said)
    return StorageError(said, path=SPARK)


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
