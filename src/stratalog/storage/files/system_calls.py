"""What the system is asked for beyond Python's own functions, and how its errors become ours."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final, cast

from stratalog.errors import StorageError

__all__ = ["FILE_MODE", "refused", "system_call"]

#: Explicit, not left to the umask: a log may hold anything.
FILE_MODE: Final = 0o600


@functools.cache
def system_call(name: str, types: str) -> Callable[..., object] | None:
    """One that Linux has and Python does not show, and what it takes, as in ``struct``; None elsewhere."""
    import ctypes

    try:
        found = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    of = {"i": ctypes.c_int, "I": ctypes.c_uint, "q": ctypes.c_int64}
    found.argtypes = [of[each] for each in types]
    return cast("Callable[..., object]", found)


def refused(error: Exception, path: str) -> StorageError:
    number = error.errno if isinstance(error, OSError) else None
    detail = (os.strerror(number) if number is not None else str(error)).lower()
    return StorageError(detail, path=path, errno=number)
