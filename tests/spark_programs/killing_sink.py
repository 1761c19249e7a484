"""The data source with a sink whose commit can be killed at any of its file-system calls.

``STRATALOG_TEST_KILL`` names a file. Where it is there when a commit begins, it says in JSON whom to kill and
when: ``{"who": "session"|"self", "batch": B, "call": N}`` kills before the N-th call of the commit of batch
B, or when that commit has returned, whichever comes first; ``{"who": …, "before": "write_at", "path": …}``
kills before the first such call. Once: the file is taken away first.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql.types import StructType

from stratalog.spark.options.table_options import options_of_schema
from stratalog.spark.source import StratalogSource
from stratalog.spark.write.sink import BatchSink, StreamSink
from stratalog.storage.files.filesystem import OsFileSystem, OsWritableFile

VARIABLE = "STRATALOG_TEST_KILL"
_CALLS: Mapping[type, tuple[str, ...]] = {
    OsFileSystem: ("open_writable", "make_dir", "rename", "link", "unlink", "sync_dir", "lock"),
    OsWritableFile: ("write_at", "truncate", "sync"),
}


class KillingSource(StratalogSource):
    """Ours, but for the commit."""

    @classmethod
    def name(cls) -> str:
        return "stratalog_killing"

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return KilledBatchSink.of(
            options_of_schema(self._given, schema), schema, is_overwrite=overwrite
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return KilledStreamSink.of(
            options_of_schema(self._given, schema), schema, is_overwrite=overwrite
        )


class KilledBatchSink(BatchSink):
    def commit(self, messages: list[Any]) -> None:
        with killed_as_planned(None):
            super().commit(messages)


class KilledStreamSink(StreamSink):
    def commit(self, messages: list[Any], batchId: int) -> None:
        with killed_as_planned(batchId):
            super().commit(messages, batchId)


@contextmanager
def killed_as_planned(batch: int | None) -> Iterator[None]:
    plan = Path(os.environ[VARIABLE])
    order = json.loads(plan.read_text()) if plan.exists() else None
    if order is None or order.get("batch", batch) != batch:
        yield
        return
    counted = 0

    def kill() -> NoReturn:
        plan.rename(plan.with_name(plan.name + ".done"))
        if order["who"] == "session":
            kill_others_of_session()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def about_to(name: str, path: str) -> None:
        nonlocal counted
        counted += 1
        if "call" in order:
            is_now = counted == order["call"]
        else:
            is_now = name == order["before"] and order["path"] in path
        if is_now:
            kill()

    for kind, names in _CALLS.items():
        for name in names:
            setattr(kind, name, _told(getattr(kind, name), about_to))
    yield
    kill()


def _told(method: Callable[..., Any], about_to: Callable[[str, str], None]) -> Callable[..., Any]:
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        path = self.path if isinstance(self, OsWritableFile) else args[0]
        about_to(method.__name__, path)
        return method(self, *args, **kwargs)

    return called


def kill_others_of_session() -> None:
    """The driver, its Java and every Python worker: all that has come from the process of the test."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if os.getsid(int(entry.name)) == os.getsid(0):
                    os.kill(int(entry.name), signal.SIGKILL)
