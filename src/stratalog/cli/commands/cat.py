"""``stratalog cat``: print the records of log directories and log files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from stratalog.cli.options import COLUMNS, OFFSETS, SIZE, TIME, Chosen, limits, partitions
from stratalog.cli.record_columns import RECORD_COLUMNS, record_chunk, record_fields
from stratalog.cli.reporter import Reporter
from stratalog.cli.verb import Verb
from stratalog.errors import OffsetOutOfRangeError, StorageError
from stratalog.inspect.latest.latest_reader import LeftOut
from stratalog.inspect.result import ArrowResult, Chunk, Result
from stratalog.inspect.scan import Scan, scan
from stratalog.records.layout import Ending

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["command"]

_ARROW_ROWS: Final = 65536
_TEXT_ROWS: Final = 8192  # as Python objects a record takes a kilobyte


@click.command(
    "cat",
    cls=Verb,
    short_help="Print records.",
    examples=(
        (
            "The last ten records of each partition, as a table",
            "stratalog cat logs -t orders --offsets -10 -o table",
        ),
        (
            "The last hour as Parquet",
            "stratalog cat logs -t orders --offsets @-1h --out orders.parquet",
        ),
        (
            "What lies on a damaged disk, around the damage",
            "stratalog cat logs --skip-damaged --columns topic,partition,offset,value",
        ),
        (
            "The newest record of each key, as compaction would leave it",
            "stratalog cat logs -t orders --latest-per-key -o ndjson",
        ),
    ),
)
@partitions
@OFFSETS
@click.option("--columns", type=COLUMNS, help="Print these columns, in this order.")
@click.option("--start", type=int, metavar="OFFSET", help="First offset.")
@click.option("--end", type=int, metavar="OFFSET", help="Offset to stop before.")
@click.option(
    "--start-time", type=TIME, help="Earliest timestamp: ISO 8601 (UTC) or milliseconds since 1970."
)
@click.option("--end-time", type=TIME, help="Timestamp to stop before.")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N records.")
@click.option(
    "--control", is_flag=True, help="Also print control records (commit and abort markers)."
)
@click.option(
    "--isolation",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_uncommitted",
    show_default=True,
    help="read_committed leaves out aborted and open transactions.",
)
@click.option(
    "--latest-per-key",
    is_flag=True,
    help="Print only the newest record of each key of each partition. Reads the files twice.",
)
@click.option(
    "--tombstones",
    is_flag=True,
    help="With --latest-per-key, also print keys whose newest record has no value.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=SIZE,
    help="Memory for keys with --latest-per-key, 256MiB if not given. More keys go to temporary files.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Continue at the next intact batch after damage, and list on stderr what was left out.",
)
@click.option("--no-crc", is_flag=True, help="Do not check CRCs.")
@limits
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    columns: tuple[str, ...] | None,
    limit: int | None,
    skip_damaged: bool,
    no_crc: bool,
    **bounds: Any,
) -> Result:
    """Print the records of log directories, partition folders or log files.

    Records are ordered by topic, partition and offset. Records below the log start offset, which
    were deleted, are left out. If log files are named, they are read in the order given.

    If a partition is damaged, its records before the damage and all other partitions are printed.
    stderr lists what was left out and where reading can resume, and the exit code is 1. An incomplete
    last batch, which a crash leaves, is a warning.

    --latest-per-key prints what compaction would leave of the records that the other options select.
    Records without a key are left out, and stderr says how many. If a partition is damaged, none of it
    is printed, unless --skip-damaged is given.

    Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers; and position,
    base_offset, producer_id, producer_epoch, sequence, leader_epoch, codec, is_control,
    is_transactional, timestamp_ms.
    """
    names = RECORD_COLUMNS if columns is None else columns
    enough = _ARROW_ROWS if limit is None else max(limit, 1)
    refused: dict[str, StorageError] = {}  # by folder: those are looked for more than once
    settings = {
        **bounds,
        "topics": chosen.topics,
        "partitions": chosen.partitions,
        "check_crc": not no_crc,
        "on_damage": "skip" if skip_damaged else "fail",
        "on_refused": lambda error: refused.setdefault(error.path, error),
    }
    as_arrow = scan(chosen.paths, columns=names, batch_rows=min(enough, _ARROW_ROWS), **settings)
    stored = dict.fromkeys("timestamp_ms" if name == "timestamp" else name for name in names)
    as_values = as_arrow.with_columns(tuple(stored), batch_rows=min(enough, _TEXT_ROWS))
    reporter.begin(as_arrow.sources)
    for error in refused.values():
        reporter.fail(error)
    return Result(
        fields=record_fields(columns),
        chunks=_chunks(as_values, names, limit, reporter),
        arrow=lambda: ArrowResult(as_arrow.schema, _batches(as_arrow, limit, reporter)),
    )


def _chunks(
    records: Scan, names: tuple[str, ...], limit: int | None, reporter: Reporter
) -> Iterator[Chunk]:
    left = limit
    for log_file, taken in _reported(records, records.taken(), left, reporter):
        chunk = record_chunk(log_file, taken, names, taken.rows if left is None else left)
        left = None if left is None else left - chunk.rows
        yield chunk
        if left == 0:
            return


def _batches(records: Scan, limit: int | None, reporter: Reporter) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in _reported(records, iter(records), left, reporter):
        wanted = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - wanted.num_rows
        yield wanted
        if left == 0:
            return


def _reported(
    records: Scan, items: Iterable[Any], limit: int | None, reporter: Reporter
) -> Iterator[Any]:
    """The items with progress, with the errors that end partitions, with a warning for every torn tail and
    for what a broker deleted meanwhile."""
    if limit == 0:
        return
    records.progress = reporter.progress
    records.on_failure = reporter.fail
    yield from reporter.until_failure(items)
    for skipped in records.skipped:
        reporter.left_out(
            skipped,
            is_skipping=records.is_skipping,
            resume_with=f"--start {skipped.resume_offset}, or --skip-damaged",
        )
    damaged = {each.path for each in records.skipped}
    for end in records.ends:
        if end.pause.ending == Ending.INCOMPLETE and end.path not in damaged:
            reporter.warn_torn(end)
    if not isinstance(reporter.error, OffsetOutOfRangeError):
        for beyond in records.beyond:
            reporter.warn(str(beyond))
    for path in records.vanished:
        reporter.warn_vanished(path)
    if records.left_out is not None:
        _report_left_out(records.left_out, reporter)


def _report_left_out(left_out: LeftOut, reporter: Reporter) -> None:
    if left_out.keyless:
        reporter.note(f"left out: {left_out.keyless} records without a key")
    if left_out.missing:
        reporter.warn(
            f"{left_out.missing} of the newest records were removed before they could be printed"
        )
