"""``stratalog salvage``: save what is intact of damaged partitions into a new log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import click

from stratalog.cli.options import Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError, UsageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.result import Field, Kind, Result, chunk_of_rows
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.candidates import find_candidates
from stratalog.rewrite.salvage.directory import check_target, write_directory
from stratalog.rewrite.salvage.folders import PartitionFolder, find_folders
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan, plan_salvage
from stratalog.rewrite.salvage.report import report_of
from stratalog.rewrite.salvage.steps import SurveyLimits
from stratalog.storage.files.filesystem import OsFileSystem

__all__ = ["command"]

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("kept_records", Kind.INTEGER),
    Field("kept_batches", Kind.INTEGER),
    Field("kept_bytes", Kind.INTEGER),
    Field("lost_offsets", Kind.INTEGER),
    Field("lost_bytes", Kind.INTEGER),
    Field("ranges", Kind.INTEGER),
    Field("report", Kind.JSON, in_table=False),
)
_SHOWN_MAX: Final = 50


@click.command(
    "salvage",
    cls=Verb,
    prints_to_file=False,
    short_help="Save what is intact of damaged partitions elsewhere.",
    examples=(
        ("Show what would be kept and lost", "stratalog salvage logs -o table"),
        (
            "Write a new log directory without the damage",
            "stratalog salvage logs -t orders --out salvaged --write",
        ),
    ),
)
@partitions
@click.option(
    "--out", "target", type=click.Path(), metavar="DIR", help="New log directory. Must not exist."
)
@click.option(
    "--write", "is_write", is_flag=True, help="Write it. Without this, only print the plan."
)
@click.option(
    "--include-leftovers",
    is_flag=True,
    help="Also keep records that are only in .deleted, .cleaned and .swap files.",
)
@limits
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    target: str | None,
    is_write: bool,
    include_leftovers: bool,
    max_batch_bytes: int,
    max_decompressed_bytes: int,
) -> Result:
    """Save what is intact of damaged partitions into a new log directory.

    Keeps every batch whose CRC matches and whose records can be decoded, each offset once and in
    order. Stores every damaged range of bytes in a file named by its position, with a report. Rebuilds
    indexes and snapshots. Never changes the original. lost_offsets is null if the end of the log is
    lost and not known. The exit code is 1 if anything is lost.
    """
    if is_write and target is None:
        raise UsageError("--write needs --out, the log directory to write")
    files = OsFileSystem()
    wanted = partition_filter(chosen.topics, chosen.partitions)
    everything = find_folders(files, chosen.paths)
    wanted.check(each.topic_partition for each in everything)
    folders = [each for each in everything if wanted.takes(each.topic_partition)]
    if target is not None:
        check_target(files, [each.path for each in folders], target)
    options = SalvageOptions(
        SurveyLimits(max_batch_bytes, max_decompressed_bytes), include_leftovers
    )
    plans = list(_plans(files, folders, options, reporter))
    if is_write and target is not None and not reporter.error:
        reporter.start_work(sum(plan.kept_bytes + plan.lost_bytes for plan in plans))
        write_directory(files, plans, target, RewriteLimits(progress=_adding(reporter.progress)))
    if any(plan.has_losses for plan in plans):
        reporter.found()
    done = f"salvaged {len(plans)} partitions into {target}" if is_write else ""
    return Result(
        fields=_FIELDS,
        chunks=(chunk_of_rows([_row(plan)]) for plan in plans),
        notes=lambda: _notes(plans),
        done=done,
    )


def _plans(
    files: OsFileSystem,
    folders: Sequence[PartitionFolder],
    options: SalvageOptions,
    reporter: Reporter,
) -> Iterator[SalvagePlan]:
    """Plan each partition. One that cannot be read is reported, and nothing is written then."""
    reporter.start_work(sum(_size_or_zero(files, each.path) for each in folders))
    note_read = _adding(reporter.progress)
    for folder in folders:
        try:
            yield plan_salvage(files, folder.path, options, note_read)
        except StorageError as error:
            reporter.fail(error)


def _size_or_zero(files: OsFileSystem, folder: str) -> int:
    try:
        return sum(each.size_bytes for each in find_candidates(files, folder).live)
    except StorageError:
        return 0  # reported when it is planned


def _adding(progress: Callable[[int], None]) -> Callable[[int], None]:
    """Turn progress in steps into progress from the beginning."""
    done = 0

    def note(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        progress(done)

    return note


def _row(plan: SalvagePlan) -> tuple[Any, ...]:
    spans = [each.span for each in plan.lost]
    return (
        plan.topic_partition.topic,
        plan.topic_partition.partition,
        plan.kept_records,
        plan.kept_batches,
        plan.kept_bytes,
        None if None in spans else sum(each or 0 for each in spans),
        plan.lost_bytes,
        len(plan.ranges),
        report_of(plan),
    )


def _notes(plans: Iterable[SalvagePlan]) -> Iterator[str]:
    lines = [line for plan in plans for line in _sentences(plan)]
    yield from lines[:_SHOWN_MAX]
    if len(lines) > _SHOWN_MAX:
        yield f"and {len(lines) - _SHOWN_MAX} more: see -o json, or the report in the new folder"


def _sentences(plan: SalvagePlan) -> Iterator[str]:
    name = str(plan.topic_partition)
    for each in plan.ranges:
        path = plan.sources[each.source].path
        yield f"{path} at byte {each.start}, {each.size_bytes} bytes: {each.detail} ({each.reason})"
    for lost in plan.lost:
        last = "the end" if lost.next is None else str(lost.next - 1)
        yield f"{name}: offsets {lost.first} to {last} are lost"
    for transaction in plan.open_transactions:
        yield (
            f"{name}: the transaction of producer {transaction.producer_id} from offset "
            f"{transaction.first_offset} on has no marker and stays open"
        )
    for source in plan.leftovers:
        yield f"{source.path} may hold records that the segments lack: see --include-leftovers"
    for note in plan.notes:
        yield f"{name}: {note}"
