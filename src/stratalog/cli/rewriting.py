"""Run a rewrite for the command line: return the rows of its plan, or carry it out and return its results."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.rewrites import PartitionRewrite, RewriteOptions, RewriteReport
from stratalog.rewrite.operation import Rewrite
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.names import LOG_SUFFIX, partition_dir_name
from stratalog.storage.recovery.report import LoadReport
from stratalog.types import TopicPartition

__all__ = [
    "FIELDS",
    "Work",
    "chosen_partitions",
    "done_result",
    "opened",
    "plan_result",
    "run_rewrite",
    "terminable",
]

#: A row for each group of segments that is rewritten, and for segments that are left for one reason.
FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("status", Kind.TEXT),
    Field("base_offset", Kind.INTEGER),
    Field("segments", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("new_segments", Kind.INTEGER, in_table=False),
    Field("new_bytes", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("reason", Kind.TEXT),
    Field("counts", Kind.JSON, in_table=False),
    Field("id", Kind.TEXT, in_table=False),
)

Row = tuple[object, ...]


def run_rewrite(
    reporter: Reporter, request: RewriteRequest, rewrite: Rewrite | Callable[[Logs], Rewrite]
) -> Result:
    """Plan a rewrite and return the plan's rows; with ``--write``, carry it out and return what was done.
    ``rewrite`` may be a function of the open logs that returns it."""
    if request.write:
        return _write(reporter, request, rewrite)
    with opened(reporter, request, read_only=True) as logs:
        named = chosen_partitions(logs, request)
        work = Work(reporter, logs, named)
        options = RewriteOptions(
            configs=request.configs, max_bytes=request.max_bytes, progress=work.note
        )
        planned = list(logs.plan_rewrite(_rewrite_of(rewrite, logs), named, options))
    return plan_result(reporter, planned)


def plan_result(reporter: Reporter, planned: Sequence[PartitionRewrite]) -> Result:
    """Return the rows of a plan, and report partitions that could not be planned for."""
    for each in planned:
        if each.error is not None:
            reporter.fail(each.error)
    rows = [row for each in planned for row in _plan_rows(each)]
    return Result(fields=FIELDS, chunks=_chunks(rows), notes=partial(_plan_notes, planned))


def _write(
    reporter: Reporter, request: RewriteRequest, rewrite: Rewrite | Callable[[Logs], Rewrite]
) -> Result:
    with opened(reporter, request) as logs, terminable():
        named = chosen_partitions(logs, request)
        work = Work(reporter, logs, named)
        run = logs.begin_rewrite(
            _rewrite_of(rewrite, logs),
            named,
            RewriteOptions(
                configs=request.configs,
                roll=request.roll,
                keep_undo=request.keep_undo,
                manifest=request.manifest,
                max_bytes=request.max_bytes,
                max_seconds=request.max_seconds,
                progress=work.note,
            ),
        )
        try:
            run.run()
        except KeyboardInterrupt:
            reporter.interrupted()
        report = run.report
    return done_result(reporter, request, report)


def done_result(reporter: Reporter, request: RewriteRequest, report: RewriteReport) -> Result:
    """Return the rows of what was done, and report what was not."""
    for each in report.partitions:
        if each.error is not None:
            reporter.fail(each.error)
        elif each.stopped is not None:
            reporter.note(f"{each.topic_partition}: {each.stopped}; run the command again to go on")
    if report.manifest_error is not None:
        reporter.fail(report.manifest_error)
        reporter.note("the rewrite is done, but its manifest was not written")
    rows = [row for each in report.partitions for row in _done_rows(each, report.id)]
    done = "segments were rewritten" if any(each.groups for each in report.partitions) else ""
    notes = partial(_done_notes, report, request)
    return Result(fields=FIELDS, chunks=_chunks(rows), notes=notes, done=done)


def _rewrite_of(rewrite: Rewrite | Callable[[Logs], Rewrite], logs: Logs) -> Rewrite:
    return rewrite(logs) if callable(rewrite) else rewrite


class Work:
    """Shows how far a rewrite is. 100 % are the data files of the partitions, as they are at the start."""

    def __init__(
        self, reporter: Reporter, logs: Logs, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        self._reporter = reporter
        self._done = 0
        reporter.start_work(sum(_data_bytes(logs.folder(each)) for each in topic_partitions))

    def note(self, size_bytes: int) -> None:
        """Take note of bytes that were read since the last call."""
        self._done += size_bytes
        self._reporter.progress(self._done)


def _data_bytes(folder: str) -> int:
    files = OsFileSystem()
    found = [
        files.stat(os.path.join(folder, entry.name))
        for entry in files.list_dir(folder)
        if entry.is_file and entry.name.endswith(LOG_SUFFIX)
    ]
    return sum(each.size for each in found if each is not None)


@contextmanager
def opened(
    reporter: Reporter, request: RewriteRequest, *, read_only: bool = False
) -> Iterator[Logs]:
    """Open the log directories of a request, and report what recovery did."""
    warn = partial(_warn_of_recovery, reporter)
    with open_logs(request.chosen.paths, read_only=read_only, on_recovery=warn) as logs:
        for damage in logs.damage:
            reporter.warn(str(damage))
        yield logs


def _warn_of_recovery(reporter: Reporter, folder: str, report: LoadReport) -> None:
    for sentence in report.warnings(folder):
        reporter.warn(sentence)


def chosen_partitions(logs: Logs, request: RewriteRequest) -> list[TopicPartition]:
    """Return the partitions that a request names: all without ``-t`` and ``-p``."""
    wanted = partition_filter(request.chosen.topics, request.chosen.partitions)
    there = [
        TopicPartition(topic.name, number)
        for topic in logs.topics().values()
        for number in topic.partitions
    ]
    wanted.check(there)
    return sorted(filter(wanted.takes, there), key=partition_dir_name)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM interrupt the work as Ctrl-C does: what is half done is discarded, and the logs closed."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _plan_rows(each: PartitionRewrite) -> Iterator[Row]:
    if each.plan is None:
        yield _row(each, "failed", reason=str(each.error))
        return
    for group in each.plan.groups:
        yield _row(
            each, "planned", base_offset=group.base_offset, segments=len(group.segments),
            size_bytes=group.size_bytes, new_bytes=group.new_bytes, records=group.records,
            reason=group.reason,
        )  # fmt: skip
    yield from _left_rows(each)


def _done_rows(each: PartitionRewrite, rewrite_id: str) -> Iterator[Row]:
    for group in each.groups:
        result = group.result
        yield _row(
            each, "rewritten", base_offset=result.old[0].base_offset, segments=len(result.old),
            size_bytes=result.old_bytes, new_segments=len(result.new), new_bytes=result.new_bytes,
            records=result.records, reason=group.planned.reason, counts=dict(group.counts),
            id=rewrite_id,
        )  # fmt: skip
    if each.error is not None:
        yield _row(each, "failed", reason=str(each.error))
    elif each.stopped is not None:
        yield _row(each, "stopped", reason=each.stopped)
    yield from _left_rows(each)


def _left_rows(each: PartitionRewrite) -> Iterator[Row]:
    for left in () if each.plan is None else each.plan.left:
        yield _row(
            each, "left", base_offset=left.base_offset, segments=left.count,
            size_bytes=left.size_bytes, reason=left.reason,
        )  # fmt: skip


def _row(each: PartitionRewrite, status: str, **values: object) -> Row:
    values |= {
        "topic": each.topic_partition.topic,
        "partition": each.topic_partition.partition,
        "status": status,
    }
    return tuple(values.get(field.name) for field in FIELDS)


def _plan_notes(planned: Sequence[PartitionRewrite]) -> Iterator[str]:
    plans = [each.plan for each in planned if each.plan is not None]
    failed = len(planned) - len(plans)
    others = f"; {failed} of {len(planned)} partitions could not be planned for" if failed else ""
    groups = sum(len(plan.groups) for plan in plans)
    if groups:
        size = sum(plan.size_bytes for plan in plans)
        work = f"{size} bytes in {groups} group(s) of segments"
        yield f"nothing was changed: --write rewrites {work}{others}"
    elif failed:
        yield f"nothing was changed{others}"
    else:
        yield "nothing was changed, and there is nothing to rewrite"


def _done_notes(report: RewriteReport, request: RewriteRequest) -> Iterator[str]:
    yield f"{report.bytes_before} bytes became {report.bytes_after}"
    if request.keep_undo and any(each.groups for each in report.partitions):
        yield f"the originals are kept: 'stratalog undo DIR {report.id} --write' restores them"


def _chunks(rows: Iterable[Row]) -> Iterator[Chunk]:
    listed = list(rows)
    if listed:
        yield chunk_of_rows(listed)
