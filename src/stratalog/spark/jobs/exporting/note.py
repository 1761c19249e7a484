"""A checkpoint belongs to one export: with another target, or another condition, what was passed over before
would be missing in what is written. What it belongs to is written down beside it, where that is a folder."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, Final

from stratalog.errors import StorageError, UsageError
from stratalog.storage.files.object_store import is_uri

__all__ = ["check_note", "has_batches"]

_NOTE: Final = "stratalog-export.json"


def check_note(checkpoint: str, note: Mapping[str, Any]) -> None:
    """UsageError where a checkpoint is another export's; otherwise it is this one's from now on. One that no
    batch was planned with yet is nobody's: its export may have failed for what it was asked."""
    if is_uri(checkpoint):
        return
    path = os.path.join(checkpoint, _NOTE)
    known = _read(path) if has_batches(checkpoint) else {}
    for name, value in note.items():
        # What an older version did not write down may have been anything.
        if known.get(name, value) != value:
            raise UsageError(
                f"{checkpoint} is the checkpoint of an export with {name} {known[name]!r}, "
                f"not {value!r}: name another checkpoint"
            )
    if known != note:
        try:
            os.makedirs(checkpoint, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(note, file)
        except OSError as error:
            raise _no_checkpoint(checkpoint, error) from None


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except FileNotFoundError:
        return {}


def _no_checkpoint(checkpoint: str, error: OSError) -> StorageError:
    reason = os.strerror(error.errno or errno.EIO).lower()
    return StorageError(
        f"no checkpoint can be kept here: {reason}", path=checkpoint, errno=error.errno
    )


def has_batches(checkpoint: str) -> bool:
    """Whether a batch was planned with it. Of one in an object store nobody can tell: it may be."""
    if is_uri(checkpoint):
        return True
    try:
        return any(name.isdigit() for name in os.listdir(os.path.join(checkpoint, "offsets")))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _no_checkpoint(checkpoint, error) from None
