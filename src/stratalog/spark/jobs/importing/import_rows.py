"""``import``: the rows of any source that Spark reads, as records of a log, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.spark.jobs.importing.columns import as_records, sort_order
from stratalog.spark.jobs.run.log_paths import absolute
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.jobs.run.watching import watched
from stratalog.spark.options.paths import local_path
from stratalog.spark.options.write_options import WriteOptions
from stratalog.spark.write.plan import check_sink_schema
from stratalog.storage.commits.journal import JournalState, read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.records import CommittedSpan
from stratalog.storage.files.filesystem import OsFileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["ImportReport", "ImportedPartition", "import_rows"]

#: What says of a row which record it was.
_EXPORTED: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """What a partition got. Of a dry run only topics and records are known."""

    topic: str
    partition: int | None
    records: int
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. ``partitions`` is None where it is not known any more: it was done long ago, or
    others committed at the same time."""

    to: str
    partitions: tuple[ImportedPartition, ...] | None
    #: The same application and version was there already, and nothing was written.
    was_done_before: bool = False
    is_dry_run: bool = False

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions or ())


def import_rows(
    spark: SparkSession,
    source: str | Sequence[str] | DataFrame,
    to: str | os.PathLike[str],
    *,
    topic: str | None = None,
    columns: Mapping[str, str] | None = None,
    order_by: Sequence[str] | None = None,
    format: str = "parquet",  # noqa: A002  # Spark's own word
    is_table: bool = False,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    write_options: Mapping[str, str] | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    on_plan: Progress | None = None,
) -> ImportReport:
    """Write the rows of ``source`` (paths, a table, or a DataFrame) into the log directory ``to``.

    ``columns`` says by SQL expressions what of a row is the ``key``, ``value``, ``timestamp``, ``headers``,
    ``partition`` and ``topic``; what is left out is the column of that name. A value of ``"*"`` is the whole
    row as JSON. Numbers and nested values become text and JSON; a whole number as a timestamp is
    milliseconds. ``write_options`` are those of the sink (``partitions``, ``compression``, a new topic's
    configs). ``order_by`` are the SQL expressions by which records are put in order; without it, rows of an
    export are in that of their offsets, and others in the order in which Spark reads its files, which need
    not be that of their names. With ``txn_app_id`` and ``txn_version`` a second try of the same import
    writes nothing.
    """
    given = {str(name): str(value) for name, value in (write_options or {}).items()}
    given["path"] = absolute(os.fspath(to))
    for name, value in (("topic", topic), ("txnAppId", txn_app_id), ("txnVersion", txn_version)):
        if value is not None:
            given[name] = str(value)
    checked = WriteOptions.of({name.lower(): value for name, value in given.items()})
    key = checked.commit_key
    with in_plain_words():
        frame = _frame(spark, source, format, schema, options or {}, is_table=is_table)
        if order_by is None and frame is not source and set(_EXPORTED) <= set(frame.columns):
            order_by = [f"`{name}`" for name in _EXPORTED]
        if order_by:
            frame = frame.orderBy(*map(sort_order, order_by))
        records = as_records(frame, columns or {}, topic=topic)
        check_sink_schema(records.schema, checked)
        before = _journal(checked.root)
        if key is not None and before.is_done(key):
            return _report(checked.root, before, before, key, was_done_before=True)
        if dry_run:
            return ImportReport(checked.root, _counts(records, topic), is_dry_run=True)
        size_bytes = 0 if progress is None else _size_of(frame)
        if on_plan is not None:
            on_plan(size_bytes)
        _write(spark, records, given, size_bytes, progress)
    return _report(checked.root, before, _journal(checked.root), key)


def _frame(
    spark: SparkSession,
    source: str | Sequence[str] | DataFrame,
    format_: str,
    schema: str | None,
    options: Mapping[str, str],
    *,
    is_table: bool,
) -> DataFrame:
    if not isinstance(source, str | list | tuple):
        return source  # type: ignore[return-value]  # a DataFrame
    if is_table:
        if not isinstance(source, str):
            raise UsageError("a table is one name")
        return spark.table(source)
    reader = spark.read.format(format_).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    paths = [source] if isinstance(source, str) else source
    return reader.load([absolute(path) for path in paths])


def _write(
    spark: SparkSession,
    records: DataFrame,
    given: Mapping[str, str],
    size_bytes: int,
    progress: Progress | None,
) -> None:
    from pyspark.sql.utils import is_remote

    options = {name: value for name, value in given.items() if name != "path"}
    writer = records.write.format("stratalog").mode("append").options(**options)
    if is_remote():
        writer.save(given["path"])
        return
    group = f"stratalog-import-{id(records)}"
    with watched(spark.sparkContext, group, "import", size_bytes, progress):
        writer.save(given["path"])


def _size_of(frame: DataFrame) -> int:
    """What the files of the source take, where they are on a disk; 0 where that is not known."""
    total = 0
    for uri in frame.inputFiles():
        path = unquote(local_path(uri))
        total += os.path.getsize(path) if os.path.isfile(path) else 0
    return total


def _journal(root: str) -> JournalState:
    return read_journal(OsFileSystem(), root)


def _report(
    root: str,
    before: JournalState,
    after: JournalState,
    key: CommitKey | None,
    *,
    was_done_before: bool = False,
) -> ImportReport:
    """What the journal says became of it. A write without a name of its own is the one that is new."""
    if key is not None:
        done = after.done_as(key)
    else:
        new = [
            each
            for number, each in after.done.items()
            if number > before.last_number and each.key.is_fresh
        ]
        done = new[0] if len(new) == 1 else None
    spans = None if done is None else tuple(map(_span, done.spans))
    return ImportReport(root, spans, was_done_before=was_done_before)


def _span(span: CommittedSpan) -> ImportedPartition:
    return ImportedPartition(
        *span.topic_partition, span.records, span.first_offset, span.last_offset
    )


def _counts(records: DataFrame, topic: str | None) -> tuple[ImportedPartition, ...]:
    rows: list[Any]
    if topic is not None:
        rows = [(topic, records.count())]
    else:
        rows = records.groupBy("topic").count().collect()
        if any(name is None for name, _ in rows):
            raise InvalidRecordError("the topic of a row is null: every row needs one")
        rows.sort()
    return tuple(ImportedPartition(name, None, count, None, None) for name, count in rows)
