"""What both salvage commands share, the local one and that on Spark: their options, and their result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click

from stratalog.cli.options import Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.errors import UsageError
from stratalog.inspect.result import Field, Kind, Result, chunk_of_rows
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan
from stratalog.rewrite.salvage.report import report_of
from stratalog.rewrite.salvage.steps import SurveyLimits

__all__ = ["SalvageRequest", "adding", "salvage_result", "salvaging"]

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


@dataclass(frozen=True, slots=True)
class SalvageRequest:
    """What a salvage is asked for."""

    chosen: Chosen
    target: str | None
    write: bool
    options: SalvageOptions

    @property
    def write_to(self) -> str | None:
        """The directory to write; None if only the plan is wanted."""
        return self.target if self.write else None


_OUT: Final = click.option(
    "--out", "target", type=click.Path(), metavar="DIR", help="New log directory. Must not exist."
)
_WRITE: Final = click.option(
    "--write", is_flag=True, help="Write it. Without this, only print the plan."
)
_LEFTOVERS: Final = click.option(
    "--include-leftovers",
    is_flag=True,
    help="Also keep records that are only in .deleted, .cleaned and .swap files.",
)


def salvaging(command: Callable[..., Any]) -> Any:
    """Add the options of a salvage. The command gets them as one value, ``request``."""

    @wraps(command)
    def called(
        *args: Any,
        chosen: Chosen,
        target: str | None,
        write: bool,
        include_leftovers: bool,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
    ) -> Any:
        if write and target is None:
            raise UsageError("--write needs --out, the log directory to write")
        survey_limits = SurveyLimits(max_batch_bytes, max_decompressed_bytes)
        options = SalvageOptions(survey_limits, include_leftovers)
        return command(*args, request=SalvageRequest(chosen, target, write, options))

    return partitions(_OUT(_WRITE(_LEFTOVERS(limits(called)))))


def salvage_result(
    reporter: Reporter, request: SalvageRequest, plans: Sequence[SalvagePlan]
) -> Result:
    """Return a row for each partition, and sentences about what is lost. The exit code is 1 if anything
    is."""
    if any(plan.has_losses for plan in plans):
        reporter.found()
    is_written = request.write and reporter.error is None
    if request.write and not is_written:
        reporter.note(
            "nothing was written, because a partition could not be read: make it readable, or name the "
            "others with -t and -p"
        )
    done = f"salvaged {len(plans)} partitions into {request.target}" if is_written else ""
    return Result(
        fields=_FIELDS,
        chunks=(chunk_of_rows([_row(plan)]) for plan in plans),
        notes=lambda: _notes(plans),
        done=done,
    )


def adding(progress: Callable[[int], None]) -> Callable[[int], None]:
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
