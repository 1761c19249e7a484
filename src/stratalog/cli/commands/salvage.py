"""``stratalog salvage``: save what is intact of damaged partitions into a new log directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.salvaging import SalvageRequest, adding, salvage_result, salvaging
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.result import Result
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.candidates import find_candidates
from stratalog.rewrite.salvage.directory import check_target, write_directory
from stratalog.rewrite.salvage.folders import PartitionFolder, find_folders
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan, plan_salvage
from stratalog.storage.files.filesystem import OsFileSystem

__all__ = ["command"]


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
@salvaging
@click.pass_obj
def command(reporter: Reporter, /, *, request: SalvageRequest) -> Result:
    """Save what is intact of damaged partitions into a new log directory.

    Keeps every batch whose CRC matches and whose records can be decoded, each offset once and in
    order. Stores every damaged range of bytes in a file named by its position, with a report. Rebuilds
    indexes and snapshots. Never changes the original. lost_offsets is null if the end of the log is
    lost and not known. The exit code is 1 if anything is lost.
    """
    files = OsFileSystem()
    chosen, target = request.chosen, request.target
    folders = find_folders(files, chosen.paths, partition_filter(chosen.topics, chosen.partitions))
    if target is not None:
        check_target(files, [each.path for each in folders], target)
    plans = list(_plans(files, folders, request.options, reporter))
    if request.write_to is not None and not reporter.error:
        reporter.start_work(sum(plan.kept_bytes + plan.lost_bytes for plan in plans))
        progress = adding(reporter.progress)
        write_directory(files, plans, request.write_to, RewriteLimits(progress=progress))
    return salvage_result(reporter, request, plans)


def _plans(
    files: OsFileSystem,
    folders: Sequence[PartitionFolder],
    options: SalvageOptions,
    reporter: Reporter,
) -> Iterator[SalvagePlan]:
    """Plan each partition. One that cannot be read is reported, and nothing is written then."""
    reporter.start_work(sum(_size_or_zero(files, each.path) for each in folders))
    note_read = adding(reporter.progress)
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
