"""Refuses a stream that reads the topic it writes: it would copy its own output forever.

Source and sink of a query meet only in its tasks. Spark tells neither about the other, and does not tell
the processes that plan them which query they work for; but tasks of both know the query and its run. So a
task that reads notes what its stream reads, in the executor's scratch folder, which Spark removes when the
executor ends. A task that writes looks for the notes of its own query before anything of it can be
committed.

A task with no shuffle between read and write does both in one executor, and always finds the note. After a
shuffle on a cluster, an executor may write rows that only others have read: then the loop is refused by
another task, or by a later batch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.spark.options.read_options import Wanted
from stratalog.storage.files.object_store import is_uri
from stratalog.storage.names import parse_partition_dir
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.spark.options.read_options import ReadOptions

__all__ = ["QueryRun", "StreamInput", "inputs_of", "note_input", "refuse_loop"]

_QUERY_ID: Final = "sql.streaming.queryId"
#: A query runs its jobs in the group of its run, which is new at every start: a query that was refused and
#: is started again with other options has the same id.
_RUN_ID: Final = "spark.jobGroup.id"
#: Where an executor keeps its temporary files, as Spark tells its Python workers.
_SCRATCH: Final = "SPARK_LOCAL_DIRS"
_PREFIX: Final = "stratalog-stream"


class QueryRun(NamedTuple):
    """One run of a streaming query, as its tasks know it."""

    query_id: str
    run_id: str

    @classmethod
    def of_task(cls) -> QueryRun | None:
        """The run this task belongs to; None where it belongs to no streaming query."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        if context is None or query_id is None:
            return None
        return cls(query_id, context.getLocalProperty(_RUN_ID) or "")

    @property
    def file_prefix(self) -> str:
        digest = sha256("\0".join(self).encode()).hexdigest()[:16]
        return f"{_PREFIX}-{digest}"


@dataclass(frozen=True, slots=True)
class StreamInput:
    """The local directories that a stream reads, and which of their topics."""

    paths: tuple[str, ...]
    wanted: Wanted

    @classmethod
    def of(cls, options: ReadOptions) -> StreamInput:
        return cls(tuple(path for path in options.paths if not is_uri(path)), options.wanted)

    def reads(self, root: str, topic: str) -> bool:
        """Whether records that are written to the topic in this log directory come back in the stream. A
        path may be a partition's folder."""
        target = os.path.realpath(root)
        return self.wanted.takes_topic(topic) and any(
            path == target or (os.path.dirname(path) == target and _is_of(topic, path))
            for path in map(os.path.realpath, self.paths)
        )

    def encoded(self) -> str:
        wanted = self.wanted
        return json.dumps(
            {
                "paths": self.paths,
                "topics": wanted.topics,
                "pattern": wanted.pattern,
                "topic_partitions": wanted.topic_partitions,
                "includes_internal": wanted.includes_internal,
            }
        )

    @classmethod
    def decoded(cls, text: str) -> StreamInput:
        """ValueError where it is not a whole note."""
        found = json.loads(text)
        topics, topic_partitions = found["topics"], found["topic_partitions"]
        wanted = Wanted(
            None if topics is None else tuple(topics),
            found["pattern"],
            None
            if topic_partitions is None
            else tuple(TopicPartition(*topic_partition) for topic_partition in topic_partitions),
            found["includes_internal"],
        )
        return cls(tuple(found["paths"]), wanted)


def _is_of(topic: str, folder: str) -> bool:
    topic_partition = parse_partition_dir(os.path.basename(folder))
    return topic_partition is not None and topic_partition.topic == topic


def note_input(options: ReadOptions) -> None:
    """Note, in a task of a stream, what the stream reads. Nothing is written to the logs. Where no note can
    be kept, as on a full disk, the stream continues without one."""
    run, folder = QueryRun.of_task(), _scratch()
    source = StreamInput.of(options)
    if run is not None and folder is not None and source.paths:
        with suppress(OSError):
            _note(run, folder, source)


@cache
def _note(run: QueryRun, folder: str, source: StreamInput) -> None:
    text = source.encoded()
    path = os.path.join(folder, f"{run.file_prefix}-{sha256(text.encode()).hexdigest()[:16]}")
    part = f"{path}.{os.getpid()}.tmp"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def inputs_of(run: QueryRun, folder: str) -> Iterator[StreamInput]:
    """What the query reads, as far as this executor's tasks have noted it."""
    prefix = f"{run.file_prefix}-"
    for name in sorted(os.listdir(folder)):
        if name.startswith(prefix) and not name.endswith(".tmp"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield StreamInput.decoded(file.read())


def refuse_loop(root: str, topic: str) -> None:
    """UsageError, in a task that is about to write to the topic, where its own query reads it. Called when
    the task has rows: by then, its query has read some."""
    run, folder = QueryRun.of_task(), _scratch()
    if run is None or folder is None:
        return
    for source in inputs_of(run, folder):
        if source.reads(root, topic):
            raise UsageError(
                f"this stream reads topic {topic!r} in {root} and writes to it: it would copy its own "
                "output forever; write to a topic that it does not read, or narrow its "
                f"{_chosen_by(source.wanted)}"
            )


def _chosen_by(wanted: Wanted) -> str:
    if wanted.topic_partitions is not None:
        return "assign"
    return "subscribe" if wanted.topics is not None else "subscribePattern"


def _scratch() -> str | None:
    """The executor's scratch folder: the first of those that Spark spreads its files over."""
    folders = os.environ.get(_SCRATCH, "").split(",")
    return folders[0] if folders[0] and os.path.isdir(folders[0]) else None
