"""Options as Spark hands them over: texts by names of any spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final, TypeVar

from stratalog.errors import UsageError
from stratalog.records.layout import INT64_MAX, INT64_MIN

__all__ = ["STORE_PREFIX", "Given", "refuse_unknown"]

T = TypeVar("T")

_SIZE: Final = re.compile(r"(\d{1,18})\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_TIME: Final = re.compile(r"-?[0-9]{1,19}")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_DURATIONS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip

#: What ``CREATE TABLE`` adds by itself.
_TABLE_OPTIONS: Final = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location",
     "serialization.format", "table_type")
)  # fmt: skip
#: Options of an object store: ``fs.endpoint_override``.
STORE_PREFIX: Final = "fs."


class Given:
    """The options by any spelling of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def names(self) -> list[str]:
        return list(self._values)

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def path(self) -> str | None:
        """What ``load`` or ``save`` was given; a table has it as its location."""
        return self.text("path") or self.text("location")

    def with_prefix(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): value
            for name, value in self._values.items()
            if name.startswith(prefix)
        }

    def _parsed(self, name: str, parse: Callable[[str], T | None], says: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        value = parse(text.strip())
        if value is None:
            raise UsageError(f"{name}={text!r}: {says}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        words = {"true": True, "false": False}
        value = self._parsed(name, lambda text: words.get(text.lower()), "true or false")
        return default if value is None else value

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self._parsed(
            name,
            lambda text: text.lower() if text.lower() in words else None,
            f"one of {', '.join(words)}",
        )
        return default if value is None else value

    def words(self, name: str) -> tuple[str, ...] | None:
        """Several, with commas between them."""
        return self._parsed(
            name,
            lambda text: tuple(part.strip() for part in text.split(",") if part.strip()) or None,
            "one name or several, with commas between them",
        )

    def count(self, name: str) -> int | None:
        return self._parsed(name, _positive, "an integer of at least 1")

    def size(self, name: str) -> int | None:
        return self._parsed(name, _size, "a size of at least 1, such as 64m or 1g")

    def duration_ms(self, name: str, default: int, *, unit: str = "s") -> int:
        """A time; a number alone is one of ``unit``."""
        value = self._parsed(name, partial(_duration_ms, unit), "a time such as 15m or 30s")
        return default if value is None else value

    def time_ms(self, name: str) -> int | None:
        return self._parsed(name, _time_ms, "milliseconds since 1970")


def _size(text: str) -> int | None:
    """``64m``, ``1g``, ``1048576``; None where it is no such thing, or zero."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) * _UNITS[(match[2] or "").lower()] or None


def _positive(text: str) -> int | None:
    return int(text) or None if _COUNT.fullmatch(text) else None


def _duration_ms(unit: str, text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _DURATIONS_MS[(match[2] or unit).lower()]


def _time_ms(text: str) -> int | None:
    if not _TIME.fullmatch(text):
        return None
    return int(text) if INT64_MIN <= int(text) <= INT64_MAX else None


def refuse_unknown(names: list[str], known: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
    """UsageError for a name that is not known. ``others`` mean nothing here and something elsewhere: one
    table is read and written, and carries what its catalogue adds."""
    lowered = {name.lower(): name for name in known}
    idle = {name.lower() for name in others}
    for name in names:
        if (
            name in lowered
            or name in idle
            or name in _TABLE_OPTIONS
            or name.startswith(("kafka.", "option.", "view.", "transient_", "spark.", STORE_PREFIX))
        ):
            continue
        near = get_close_matches(name, lowered, n=1, cutoff=0.6)
        meant = f"did you mean {lowered[near[0]]}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"no option {name!r}: {meant}")
