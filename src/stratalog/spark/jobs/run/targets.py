"""Where a job may write: not into the logs that it reads, nor among what another export keeps in order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from stratalog.errors import UsageError
from stratalog.storage.files.object_store import is_uri

__all__ = ["FILE_FORMATS", "check_target", "refuse_within"]

#: The log that a stream of Spark's keeps in its target: readers go by it, and see nothing else there.
_STREAM_LOG: Final = "_spark_metadata"
#: Formats whose targets are folders of files.
FILE_FORMATS: Final = ("parquet", "json", "csv", "orc", "text", "avro", "xml")


def refuse_within(path: str, log_directories: Iterable[str], what: str) -> None:
    """UsageError where a place to write to and a log directory are one, or one within the other: Spark may
    empty its targets, and Kafka does not start on a directory with folders that it does not know."""
    if is_uri(path):
        return
    whole = os.path.realpath(path)
    for folder in log_directories:
        root = os.path.realpath(folder)
        if os.path.commonpath([whole, root]) in (whole, root):
            raise UsageError(
                f"{what} {path} and the log directory {folder} are one, or one within the other: "
                "name a place outside"
            )


def check_target(to: str, form: str, *, checkpoint_is_new: bool | None, mode: str) -> None:
    """UsageError where a target holds what this export would hide, or be hidden by.

    ``checkpoint_is_new`` is None where there is no checkpoint. Spark passes over a batch whose number the
    log in the target has already, whoever wrote it, and its readers pass over files which that log has not.
    """
    if is_uri(to) or not os.path.isdir(to):
        return
    has_log = _has_batches(os.path.join(to, _STREAM_LOG))
    if checkpoint_is_new is None:
        if has_log and mode == "append":
            raise UsageError(
                f"{to} was written by an export with a checkpoint, and files added without one are "
                "not visible there: use that checkpoint, or another target"
            )
        return
    is_file_format = form.lower() in FILE_FORMATS
    has_files = any(not name.startswith((".", "_")) for name in os.listdir(to))
    if checkpoint_is_new and (has_log or (is_file_format and has_files)):
        raise UsageError(
            f"{to} holds the output of another export, and this checkpoint is new: use the "
            "checkpoint of that export, or an empty target"
        )


def _has_batches(log: str) -> bool:
    """Whether the log of a stream lists anything. Spark makes its folder before the first batch is planned: a
    run that was killed then, or failed, has written nothing."""
    try:
        return any(name.partition(".")[0].isdigit() for name in os.listdir(log))
    except (FileNotFoundError, NotADirectoryError):
        return False
