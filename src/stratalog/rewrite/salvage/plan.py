"""Plan the salvage of one partition: what is kept, what is not and why, which offsets are lost.

Nothing is written. The plan is what a dry run prints, and all that writing needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stratalog.errors import StorageError, UsageError
from stratalog.rewrite.salvage.candidates import Candidates, SourceFile, find_candidates
from stratalog.rewrite.salvage.epochs import read_epochs
from stratalog.rewrite.salvage.header_facts import (
    HeaderFacts,
    KeptHeaders,
    LocalHeaders,
    OpenTransaction,
    find_epoch_outliers,
)
from stratalog.rewrite.salvage.kept_batches import BatchesSeen, single_batches
from stratalog.rewrite.salvage.losses import (
    DamagedRange,
    LostOffsets,
    damaged_ranges,
    find_lost,
)
from stratalog.rewrite.salvage.runs import FileSurvey, Run
from stratalog.rewrite.salvage.selection import LeftOut, LogFacts, Selection, select_runs
from stratalog.rewrite.salvage.steps import DEFAULT_LIMITS, SurveyLimits
from stratalog.rewrite.salvage.survey import survey_file
from stratalog.storage.epochs.leader_epochs import LeaderEpochs
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import parse_partition_dir
from stratalog.storage.segment.clean_end import CleanEnds
from stratalog.storage.segment.log_file import open_log_file
from stratalog.types import Progress, TopicPartition

__all__ = [
    "DEFAULT_OPTIONS",
    "SalvageInput",
    "SalvageOptions",
    "SalvagePlan",
    "find_input",
    "plan_from",
    "plan_salvage",
    "survey_source",
]


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """What a salvage goes by. ``with_leftovers``: records that are only in files which a load would delete
    (``.deleted``, ``.cleaned``, ``.swap`` without a decision) are kept, too."""

    limits: SurveyLimits = DEFAULT_LIMITS
    with_leftovers: bool = False


DEFAULT_OPTIONS: Final = SalvageOptions()
#: How often batches with wrong leader epochs are left out before what is left is taken as it is.
_SELECTIONS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class SalvagePlan:
    """What becomes of one partition. ``kept`` are in the order of their offsets; ``sources`` are the files
    that their numbers stand for. ``ranges`` are all bytes of the segments that are not kept."""

    folder: str
    topic_partition: TopicPartition
    sources: tuple[SourceFile, ...]
    kept: tuple[Run, ...]
    ranges: tuple[DamagedRange, ...]
    lost: tuple[LostOffsets, ...]
    facts: HeaderFacts
    known_epochs: LeaderEpochs | None = None
    leftovers: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_v07(self) -> bool:
        return any(source.is_v07 for source in self.sources)

    @property
    def kept_records(self) -> int:
        return sum(run.records for run in self.kept)

    @property
    def kept_batches(self) -> int:
        return sum(run.batches for run in self.kept)

    @property
    def kept_bytes(self) -> int:
        return sum(run.size_bytes for run in self.kept)

    @property
    def lost_bytes(self) -> int:
        """The bytes that are not kept, without zeros at the end of files, which never held anything."""
        return sum(each.size_bytes for each in self.ranges if not each.is_blank)

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        return self.facts.open_transactions

    @property
    def log_start(self) -> int:
        """The base offset of the first segment, or of the first leftover that is used."""
        first = min(
            (source.base_offset for source in self.sources if not source.is_leftover), default=0
        )
        return min(first, self.kept[0].first) if self.kept else first

    @property
    def log_end(self) -> int:
        return self.kept[-1].next if self.kept else self.log_start

    @property
    def has_losses(self) -> bool:
        return bool(self.lost) or any(not each.is_blank for each in self.ranges)


@dataclass(frozen=True, slots=True)
class SalvageInput:
    """What a partition is salvaged from: its data files, of which ``sources`` are surveyed."""

    folder: str
    topic_partition: TopicPartition
    candidates: Candidates
    sources: tuple[SourceFile, ...]


def plan_salvage(
    file_system: FileSystem,
    folder: str,
    options: SalvageOptions = DEFAULT_OPTIONS,
    note_read: Progress = lambda _: None,
) -> SalvagePlan:
    """Find out what of a partition's folder can be kept. Raise UsageError if the folder is not a partition's,
    StorageError if a file cannot be read. ``note_read`` is called with the bytes read since the last call."""
    given = find_input(file_system, folder, options)
    headers = LocalHeaders(file_system, given.sources)
    surveys = [
        survey_source(file_system, number, source, options.limits, note_read, headers.seen)
        for number, source in enumerate(given.sources)
    ]
    return plan_from(file_system, given, surveys, headers)


def find_input(file_system: FileSystem, folder: str, options: SalvageOptions) -> SalvageInput:
    """List what a partition is salvaged from. Raise UsageError if the folder is not a partition's,
    StorageError if it cannot be read."""
    topic_partition = parse_partition_dir(os.path.basename(os.path.abspath(folder)))
    if topic_partition is None:
        raise UsageError(f"{folder} is not a partition folder: its name is not <topic>-<partition>")
    candidates = find_candidates(file_system, folder)
    _refuse_mixture(folder, candidates)
    sources = (*candidates.live, *(candidates.leftovers if options.with_leftovers else ()))
    return SalvageInput(folder, topic_partition, candidates, sources)


def plan_from(
    file_system: FileSystem,
    given: SalvageInput,
    surveys: Sequence[FileSurvey],
    headers: KeptHeaders,
) -> SalvagePlan:
    """Decide what of a partition is kept, from the surveys of its sources."""
    folder, candidates, sources = given.folder, given.candidates, given.sources
    log_end = _clean_end(file_system, folder, given.topic_partition)
    live = surveys[: len(candidates.live)]
    log_facts = LogFacts.of(
        live,
        [source.base_offset for source in candidates.live],
        log_end,
        is_v07=any(source.is_v07 for source in sources),
    )
    known_epochs = read_epochs(file_system, folder)
    selection, facts = _select(file_system, sources, surveys, log_facts, known_epochs, headers)
    ranges = damaged_ranges(
        [each for survey in live for each in survey.damage], selection.left_out, selection.in_place
    )
    return SalvagePlan(
        folder=folder,
        topic_partition=given.topic_partition,
        sources=sources,
        kept=selection.kept,
        ranges=ranges,
        lost=find_lost(
            selection.kept,
            ranges,
            [source.extent for source in sources],
            is_dense=log_facts.is_dense,
            log_end=log_end,
        ),
        facts=facts,
        known_epochs=known_epochs,
        leftovers=candidates.leftovers,
        notes=candidates.notes,
    )


def _refuse_mixture(folder: str, candidates: Candidates) -> None:
    if len({source.is_v07 for source in (*candidates.live, *candidates.leftovers)}) > 1:
        raise UsageError(
            f"{folder} holds .kafka files of 0.7 and .log files: move one kind elsewhere, and salvage each "
            "by itself"
        )


def survey_source(
    file_system: FileSystem,
    number: int,
    source: SourceFile,
    limits: SurveyLimits,
    note_read: Progress,
    seen: BatchesSeen,
) -> FileSurvey:
    """Survey one source of a partition, which has this number among them."""
    with open_log_file(source.path, file_system) as log_file:
        found = replace(log_file, base_offset=source.base_offset, is_v07=source.is_v07).up_to(
            source.size_bytes
        )
        if log_file.size < source.size_bytes:
            raise StorageError(
                "became shorter: run salvage when nothing writes to the directory",
                path=source.path,
            )
        return survey_file(found, number, limits, note_read, seen)


def _clean_end(file_system: FileSystem, folder: str, topic_partition: TopicPartition) -> int | None:
    """Return where a clean shutdown left the log; None if there was none."""
    root = os.path.dirname(os.path.abspath(folder))
    found = CleanEnds(file_system).of(root, topic_partition)
    return None if found is None else found.offset


def _batches_of(file_system: FileSystem, sources: Sequence[SourceFile], run: Run) -> Sequence[Run]:
    return tuple(single_batches(file_system, sources[run.source], run))


def _select(
    file_system: FileSystem,
    sources: Sequence[SourceFile],
    surveys: Sequence[FileSurvey],
    log_facts: LogFacts,
    known_epochs: LeaderEpochs | None,
    headers: KeptHeaders,
) -> tuple[Selection, HeaderFacts]:
    """Select what is kept and read its headers, unless those that the surveys have read (``headers``) are the
    same. If they show batches with wrong leader epochs, select again without them: another copy may be
    right."""
    runs = [run for survey in surveys for run in survey.runs]
    live = [run for run in runs if not sources[run.source].is_leftover]
    leftovers = [run for run in runs if sources[run.source].is_leftover]
    has_all = all(survey.has_shown_all for survey in surveys)
    batches_of = partial(_batches_of, file_system, sources)
    outliers: tuple[LeftOut, ...] = ()
    for _ in range(_SELECTIONS_MAX):
        selection = select_runs(live, log_facts, batches_of, leftovers)
        if any(source.is_v07 for source in sources):
            return selection, HeaderFacts((), ())
        is_read = has_all and selection.kept == tuple(runs)
        facts = headers.surveyed() if is_read else headers.read(selection.kept)
        found = find_epoch_outliers(facts.epochs, known_epochs)
        if not found:
            break
        outliers += tuple(each for each in found if not sources[each.run.source].is_leftover)
        live = list(_cut_out(live, found))
        leftovers = list(_cut_out(leftovers, found))
    return replace(selection, left_out=(*selection.left_out, *outliers)), facts


def _cut_out(runs: Sequence[Run], outliers: Sequence[LeftOut]) -> tuple[Run, ...]:
    """Return the runs without some of their batches."""
    gone = {(each.run.source, each.run.start): each.run for each in outliers}
    kept: list[Run] = []
    for run in runs:
        inside = [each for (source, start), each in gone.items() if source == run.source
                  and run.start <= start < run.end]  # fmt: skip
        kept += _pieces(run, sorted(inside))
    return tuple(kept)


def _pieces(run: Run, gone: Sequence[Run]) -> list[Run]:
    """Cut batches out of a run. The counts of the pieces add up; how they are divided does not matter."""
    pieces = []
    batches = run.batches - len(gone)
    records = run.records - sum(each.records for each in gone)
    control = run.control_records - sum(each.control_records for each in gone)
    start, first = run.start, run.first
    for each in (*gone, run._replace(start=run.end, first=run.next)):
        if each.start > start:
            pieces.append(Run(run.source, start, each.start, first, each.first, 0, 0))
        start, first = each.end, each.next
    if pieces:
        pieces[0] = pieces[0]._replace(batches=batches, records=records, control_records=control)
    return pieces
