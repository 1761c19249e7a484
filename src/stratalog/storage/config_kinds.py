"""The kinds of values that configs have: what is accepted, and what is said where it is not.

A value may come as text, from a command line or a file, or as Python has it. Text is read as Kafka reads it.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from stratalog.records.layout import INT32_MAX, INT64_MAX, INT64_MIN

__all__ = [
    "ConfigKind",
    "boolean",
    "double",
    "folders",
    "int32",
    "int64",
    "one_of",
    "replica_list",
    "text_of",
    "words_of",
]


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """``read`` gives the value, or raises ValueError; ``allowed`` completes the sentence "it is not …"."""

    type: str
    allowed: str
    read: Callable[[object], Any]


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_NUMBER_SIZE_MAX: Final = 400


def int32(smallest: int, largest: int = INT32_MAX, *, or_exactly: int | None = None) -> ConfigKind:
    """A Kafka ``int``, within these limits or one value beside them."""
    return _integer("int", 31, smallest, largest, or_exactly)


def int64(smallest: int = INT64_MIN) -> ConfigKind:
    """A Kafka ``long`` from ``smallest`` on."""
    return _integer("long", 63, smallest, INT64_MAX, None)


def _integer(
    kind: str, bits: int, smallest: int, largest: int, or_exactly: int | None
) -> ConfigKind:
    def read(value: object) -> int:
        number = _whole_number(value)
        if number != or_exactly and not smallest <= number <= largest:
            raise ValueError(value)
        return number

    allowed = f"a whole number of {bits + 1} bits"
    if largest < 2**bits - 1:
        allowed += f" from {smallest} to {largest}"
    elif smallest > -(2**bits):
        allowed += f", {smallest} or more"
    if or_exactly is not None:
        allowed += f", or {or_exactly}"
    return ConfigKind(kind, allowed, read)


def _whole_number(value: object) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value.strip()):
            raise ValueError(value)
        return int(value)
    if isinstance(value, bool):  # Python takes True for 1: in a config it is a mistake
        raise ValueError(value)  # noqa: TRY004
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(value) from None


def double(smallest: float, largest: float) -> ConfigKind:
    """A Kafka ``double`` within these limits."""

    def read(value: object) -> float:
        if isinstance(value, str):
            text = value.strip()
            if len(text) > _NUMBER_SIZE_MAX or not _NUMBER.fullmatch(text):
                raise ValueError(value)
            number = float(text)
        elif isinstance(value, float):
            number = value
        else:
            whole = _whole_number(value)
            number = float(whole) if abs(whole) < 2**53 else float("inf")
        if not smallest <= number <= largest:  # also where it is no number at all
            raise ValueError(value)
        return number

    return ConfigKind("double", f"a number from {smallest:g} to {largest:g}", read)


def boolean() -> ConfigKind:
    """A Kafka ``boolean``."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        text = value.strip().lower() if isinstance(value, str) else ""
        if text not in ("true", "false"):
            raise ValueError(value)
        return text == "true"

    return ConfigKind("boolean", "true or false", read)


def one_of(*words: str) -> ConfigKind:
    """A Kafka ``string`` that is one of these."""

    def read(value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if text not in words:
            raise ValueError(value)
        return text

    return ConfigKind("string", f"one of {', '.join(words)}", read)


def words_of(*words: str) -> ConfigKind:
    """A Kafka ``list`` of some of these, or none; the case of letters means nothing."""

    def read(value: object) -> tuple[str, ...]:
        # A dict for its order: what is named twice is there once, where it stood first.
        chosen = tuple(dict.fromkeys(word.lower() for word in _list_words(value)))
        if not set(chosen) <= set(words):
            raise ValueError(value)
        return chosen

    return ConfigKind("list", f"a list of {', '.join(words)}, or an empty one", read)


def replica_list() -> ConfigKind:
    """A Kafka ``list`` of partition:broker, or ``*`` for all."""

    def read(value: object) -> tuple[str, ...]:
        chosen = _list_words(value)
        if chosen != ("*",) and not all(_REPLICA.fullmatch(word) for word in chosen):
            raise ValueError(value)
        return chosen

    return ConfigKind("list", "* or a list of partition:broker", read)


def folders() -> ConfigKind:
    """A Kafka ``list`` of paths, at least one and none of them empty."""

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, os.PathLike):
            value = [value]
        elif isinstance(value, Iterable) and not isinstance(value, str):
            value = list(value)
        if isinstance(value, list):
            value = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
        # A dict for its order: what is named twice is there once.
        paths = tuple(dict.fromkeys(_list_words(value)))
        if not paths or not all(paths) or any("\0" in path for path in paths):
            raise ValueError(value)
        return paths

    return ConfigKind("list", "a list of folders, none of them empty", read)


def _list_words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        given: list[object] = list(value.split(",")) if value.strip() else []
    elif isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        given = list(value)
    else:
        raise ValueError(value)  # noqa: TRY004
    words = tuple(word.strip() for word in given if isinstance(word, str))
    if len(words) != len(given):
        raise ValueError(value)
    return words


def text_of(value: object) -> str:
    """A value as Kafka writes it, to be read again."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
