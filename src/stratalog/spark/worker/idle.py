"""Lets Spark's Python workers end without a traceback on stderr when Spark closes their sockets.

Spark keeps the Python processes that plan a data source and run its tasks for reuse, and closes their
sockets a minute after the last use. A worker of Spark 4.3 takes that for a failed request: it writes an
EOFError into the closed socket, and its daemon prints the BrokenPipeError that follows, one for each worker.
Nothing has failed. Spark has no setting for it (``killWorkerOnFlushFailure`` only changes the words), so code
of ours that runs in a worker lets it exit when its socket is closed between two requests.

The same traceback comes from the worker of a stream that is stopped, and from tasks that are cancelled, as
beside a failed one: the worker reports an error into a socket that Spark has closed. Then the error is not to
be told, since nobody can read it, and the worker exits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import IO, Any, Final, NoReturn

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
#: What reports an error to Spark, where each kind of worker looks it up: those that plan, those that run
#: tasks, and those that a stream asks.
_REPORTS: Final = tuple(
    (module, "", "handle_worker_exception")
    for module in (
        "pyspark.sql.worker.utils",
        "pyspark.worker",
        "pyspark.sql.streaming.python_streaming_source_runner",
    )
)

_Function = Callable[..., Any]


def exit_quietly_when_closed() -> None:
    """In a Python worker of Spark's, end the process where a next request would begin and none comes, and
    where an error cannot be reported because the socket is closed. In any other process, and in a Spark that
    has no such functions, do nothing."""
    if not os.environ.get(_REUSED):
        return
    for function in _FIRST_READS:
        _wrap(*function, _ending_at_eof)
    for function in _REPORTS:
        _wrap(*function, _ending_when_refused)


def _wrap(module: str, owner: str, name: str, wrapped: Callable[[_Function], _Function]) -> None:
    home: Any = sys.modules.get(module)
    if owner:
        home = getattr(home, owner, None)
    function = getattr(home, name, None)
    if function is not None and not hasattr(function, "__wrapped__"):
        setattr(home, name, wrapped(function))


def _ending_at_eof(read: _Function) -> _Function:
    @wraps(read)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return read(*args, **kwargs)
        except EOFError:
            _exit(0)  # as the daemon ends a worker; an exception would be written to the socket

    return wrapper


def _ending_when_refused(report: _Function) -> _Function:
    @wraps(report)
    def wrapper(error: BaseException, outfile: IO[bytes], *args: Any, **kwargs: Any) -> Any:
        answer = report(error, outfile, *args, **kwargs)
        try:
            outfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            _exit(1)  # the daemon would flush again, and print what comes of it
        return answer

    return wrapper


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
