"""The sink: tasks stage finished batches beside the log, and the driver's commit lets them in, exactly once.

A task writes pieces: record batches with their offsets counted from zero, compressed, checked, synced. What a
task that died left behind is never looked at. The commit on the driver (``manager.commits``) is one synced
intent; it happens once for a query and batch id, however often it is asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import CorruptionError, StratalogError, UsageError
from stratalog.manager.commit_pieces import commit_pieces
from stratalog.manager.commits.commits import (
    TopicPlan,
    discard_pieces,
)
from stratalog.manager.root.lock_wait import wait_for_lock
from stratalog.spark.options.write_options import WriteOptions
from stratalog.spark.worker.errors import without_traceback
from stratalog.spark.write.plan import SinkPlan, check_sink_schema, plan_sink
from stratalog.spark.write.stream_loops import refuse_loop
from stratalog.spark.write.task import OnTopic, stage_rows
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.files.filesystem import OsFileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchSink", "StagedPieces", "StreamSink"]

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
#: How many partitions the driver writes to at once: it has nothing else to do then.
_COMMIT_THREADS: Final = 4


@dataclass(frozen=True)
class StagedPieces(WriterCommitMessage):
    """What one task has ready."""

    key: CommitKey
    task: int
    pieces: tuple[Piece, ...]


class BatchSink(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, plan: SinkPlan, key: CommitKey) -> None:
        self._plan = plan
        self._key = key

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> Self:
        plan = _plan(given, schema, is_overwrite=is_overwrite)
        return cls(plan, plan.options.commit_key or CommitKey.fresh())

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPieces:
        return _stage(self._plan, self._key, iterator)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._plan, self._key, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._plan, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """The micro-batches of one query."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> Self:
        plan = _plan(given, schema, is_overwrite=is_overwrite)
        if plan.options.app_id is not None:
            raise UsageError("txnAppId is for batch writes: a stream has its query's own id")
        return cls(plan)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPieces:
        on_topic = partial(refuse_loop, self._plan.options.root)
        return _stage(self._plan, _key_of_task(), iterator, on_topic)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        key = _key_of_messages(messages)
        assert key.version == batchId, (key, batchId)
        _commit(self._plan, key, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        _abort(self._plan, messages)


def _plan(given: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> SinkPlan:
    if is_overwrite:
        raise UsageError('logs cannot be overwritten: use .mode("append")')
    options = WriteOptions.of(given)
    check_sink_schema(schema, options)
    plan = plan_sink(options)
    # Said before tasks do their work in vain; whoever comes later is met by the commit.
    wait_for_lock(options.root, timeout_s=options.lock_timeout_s)
    return plan


def _key_of_task() -> CommitKey:
    """The query and batch that this task works for. The writer itself is not told."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called in a task"
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        raise UsageError("this Spark does not tell its tasks the query and batch: 4.3 does")
    return CommitKey(query, int(batch))


def _key_of_messages(messages: Sequence[WriterCommitMessage | None]) -> CommitKey:
    """Every task of a batch names it; a batch without rows has a task, too."""
    keys = {each.key for each in messages if isinstance(each, StagedPieces)}
    assert len(keys) == 1, keys
    return keys.pop()


def _stage(
    plan: SinkPlan,
    key: CommitKey,
    rows: Iterator[pa.RecordBatch],
    on_topic: OnTopic | None = None,
) -> StagedPieces:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called in a task"
    task = context.partitionId()
    # What Spark numbers attempts by begins anew with every driver, and a batch may be tried by two.
    attempt = uuid.uuid4().int >> 66
    pieces = stage_rows(plan, key, rows, task=task, attempt=attempt, on_topic=on_topic)
    return StagedPieces(key, task, pieces)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPieces]:
    staged = [each for each in messages if isinstance(each, StagedPieces)]
    return sorted(staged, key=lambda each: each.task)


def _commit(plan: SinkPlan, key: CommitKey, messages: Sequence[WriterCommitMessage | None]) -> None:
    pieces = [piece for each in _staged(messages) for piece in each.pieces]
    new = {piece.topic for piece in pieces} - plan.counts.keys()
    try:
        commit_pieces(
            plan.options.root,
            key,
            pieces,
            topics={name: TopicPlan(plan.new_count, plan.options.configs) for name in sorted(new)},
            lock_timeout_s=plan.options.lock_timeout_s,
            clock=SYSTEM_CLOCK,
            threads=_COMMIT_THREADS,
        )
    except CorruptionError as error:
        if error.reason != "piece_missing":
            raise
        raise CorruptionError(
            error.reason,
            "a task has written it, and the driver does not see it",
            path=error.path,
            advice="nothing was committed: every worker must reach the log directory under this path",
        ) from None


def _abort(plan: SinkPlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Take away what finished tasks staged. What a commit has promised stays: it will happen.

    Where that cannot be done, a later commit does it. Were it an error, Spark would show it in place of the
    one that the write failed with."""
    pieces = [piece for each in _staged(messages) for piece in each.pieces]
    with suppress(StratalogError):
        discard_pieces(plan.options.root, pieces, file_system=OsFileSystem())
