"""Salvage a log directory on Spark, in a process that is killed before a certain file-system call.

    python -m tests.spark_programs.killed_salvage LOGS TARGET CALL

The process, which is the driver, kills itself with SIGKILL before its CALL-th call that changes the disk; 0
kills nobody. Tasks run in processes of their own, and their calls do not count.
"""

from __future__ import annotations

import os
import signal
import sys

from stratalog.spark import jobs
from stratalog.spark.session import session
from tests.spark.jobs.kills import counting


def main() -> None:
    path, target, call = sys.argv[1:]
    left = int(call)

    def note() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = session("killed salvage", master="local[1]")
    with counting(note):
        jobs.salvage(spark, path, target, write=True)
    spark.stop()


if __name__ == "__main__":
    main()
