"""The folder of an export without a checkpoint: there when it is whole, and not before.

Spark writes into its target and leaves half of it there when it is killed; a second try is then refused,
because something is there. So everything is written into a folder next to the target, which gets the
target's name in one step when it is whole. What a killed run left is removed by the next one: a run holds a
lock on its folder for as long as it lives, so that the folder of another that is still running stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from stratalog.errors import StorageError, UsageError
from stratalog.spark.jobs.run.targets import FILE_FORMATS
from stratalog.storage.files.object_store import is_uri

__all__ = ["can_be_renamed", "whole_folder"]

_SIGN: Final = ".stratalog-export-"
_LOCK: Final = "_lock"


def can_be_renamed(to: str, form: str, mode: str) -> bool:
    """Whether the target is a folder of plain files on this machine that must not exist yet: then it can be
    written under another name first."""
    return mode == "errorifexists" and form.lower() in FILE_FORMATS and not is_uri(to)


@contextmanager
def whole_folder(to: str) -> Iterator[str]:
    """A folder to write into that becomes ``to`` at the end; nothing is left after an error. UsageError where
    ``to`` is there already."""
    parent, name = os.path.split(to)
    _refuse_existing(to)
    try:
        os.makedirs(parent, exist_ok=True)
        _remove_abandoned(parent, name)
        partial = os.path.join(parent, f".{name}{_SIGN}{uuid.uuid4().hex[:12]}")
        os.mkdir(partial)
        with open(os.path.join(partial, _LOCK), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield partial
                _refuse_existing(to)
                os.remove(lock.name)
                os.rename(partial, to)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as error:
        raise _refused(error, to) from None


def _refuse_existing(to: str) -> None:
    if os.path.lexists(to):
        raise UsageError(
            f"{to} already exists: name another place, or choose the mode append or overwrite"
        )


def _refused(error: OSError, to: str) -> StorageError:
    reason = os.strerror(error.errno or errno.EIO).lower()
    return StorageError(f"nothing can be exported here: {reason}", path=to, errno=error.errno)


def _remove_abandoned(parent: str, name: str) -> None:
    """Remove what runs to the same target left that do not live any more."""
    for each in os.listdir(parent):
        if not each.startswith(f".{name}{_SIGN}"):
            continue
        folder = os.path.join(parent, each)
        with suppress(OSError), open(os.path.join(folder, _LOCK), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
