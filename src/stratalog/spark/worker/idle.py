"""Lets Spark's idle Python workers end without a traceback on stderr.

Spark keeps the Python processes that plan a data source and run its tasks for reuse, and closes their
sockets a minute after the last use. A worker of Spark 4.3 takes that for a failed request: it writes an
EOFError into the closed socket, and its daemon prints the BrokenPipeError that follows, one for each worker.
Nothing has failed. Spark has no setting for it (``killWorkerOnFlushFailure`` only changes the words), so code
of ours that runs in a worker lets it exit when its socket is closed between two requests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

__all__ = ["exit_quietly_when_closed"]

#: Spark sets it for workers that wait for a next request.
_REUSED: Final = "SPARK_REUSE_WORKER"
#: What reads the beginning of a request: module, class or nothing, and function. The first is for workers
#: that plan, the second for those that run tasks.
_FIRST_READS: Final = (
    ("pyspark.sql.worker.utils", "", "check_python_version"),
    (
        "pyspark.messages.socket.spark_socket_message_receiver",
        "SparkSocketMessageReceiver",
        "_do_get_init_message",
    ),
)


def exit_quietly_when_closed() -> None:
    """In a Python worker of Spark's, end the process where a next request would begin and none comes. In any
    other process, and in a Spark that has no such functions, do nothing."""
    if not os.environ.get(_REUSED):
        return
    for module, owner, name in _FIRST_READS:
        home: Any = sys.modules.get(module)
        if owner:
            home = getattr(home, owner, None)
        read = getattr(home, name, None)
        if read is not None and not hasattr(read, "__wrapped__"):
            setattr(home, name, _ending_at_eof(read))


def _ending_at_eof(read: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return read(*args, **kwargs)
        except EOFError:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # as the daemon ends a worker; an exception would be written to the socket

    return wrapper
