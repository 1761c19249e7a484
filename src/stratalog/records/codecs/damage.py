"""How a codec refuses: what the library says, made into the errors of a damaged or too large payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from stratalog.errors import CorruptionError, LimitExceededError
from stratalog.records.layout import Codec, Reason

__all__ = ["RefusedError", "call_library", "damaged", "refusal", "too_large"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RefusedError(Exception):
    """The library would not: damaged input, or too little room for the output."""


def call_library(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """What ``function`` returns, or :class:`RefusedError` for whatever it raises."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001
        raise RefusedError(refusal(error)) from None


def refusal(error: BaseException) -> str:
    """What the library said. A panic inside it is no Exception, so everything is caught."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return str(error) or type(error).__name__


def damaged(codec: int, cause: str) -> CorruptionError:
    """The one error for everything that can be wrong inside a payload."""
    return CorruptionError(
        Reason.COMPRESSED_DATA.name.lower(),
        f"the {_name(codec)} payload cannot be decompressed: {cause}",
        advice="if the CRC matches, the producer wrote these bytes, and every replica has the same",
    )


def too_large(codec: int, size_max: int) -> LimitExceededError:
    """The error for a payload that may be fine, but passes the limit."""
    return LimitExceededError(
        Reason.DECOMPRESSED_TOO_LARGE.name.lower(),
        f"the {_name(codec)} payload decompresses to more than {size_max} bytes",
        advice="raise max_decompressed_bytes if its records are really that large",
    )


def _name(codec: int) -> str:
    return Codec(codec).text
