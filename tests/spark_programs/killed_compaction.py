"""Compact a topic on Spark, in a process that is killed before a certain file-system call of its commit.

    python -m tests.spark_programs.killed_compaction LOGS TOPIC CALL

The process kills itself with SIGKILL before the CALL-th call that changes the disk, counted from the moment
at which the tasks are done; 0 kills nobody. Without a kill it prints the number of such calls.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from stratalog.spark import jobs
from stratalog.spark.jobs.rewriting.rewrite import RewriteJob
from stratalog.spark.session import session
from stratalog.storage.files.filesystem import OsFileSystem, OsWritableFile

_CALLS: Mapping[type, tuple[str, ...]] = {
    OsFileSystem: ("open_writable", "make_dir", "rename", "link", "unlink", "sync_dir"),
    OsWritableFile: ("write_at", "truncate", "sync"),
}


class Killer:
    """Counts calls, once it is armed, and ends the process before one of them."""

    def __init__(self, call: int) -> None:
        self.call = call
        self.count = 0
        self.is_armed = False

    def note(self) -> None:
        if self.is_armed:
            self.count += 1
            if self.count == self.call:
                os.kill(os.getpid(), signal.SIGKILL)


def plant(killer: Killer) -> None:
    for kind, names in _CALLS.items():
        for name in names:
            setattr(kind, name, counted(killer, getattr(kind, name)))
    real = RewriteJob._commit

    def commit(job: RewriteJob, *given: Any) -> None:
        killer.is_armed = True
        try:
            real(job, *given)
        finally:
            killer.is_armed = False

    RewriteJob._commit = commit  # type: ignore[assignment, method-assign]


def counted(killer: Killer, real: Any) -> Any:
    def call(*given: Any, **names: Any) -> Any:
        killer.note()
        return real(*given, **names)

    return call


def main() -> None:
    path, topic, call = sys.argv[1:]
    killer = Killer(int(call))
    plant(killer)
    spark = session("killed compaction", master="local[1]")
    jobs.compact(spark, path, topics=topic, write=True)
    print(f"calls: {killer.count}")
    spark.stop()


if __name__ == "__main__":
    main()
