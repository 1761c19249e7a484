"""Rewrite the partitions of open log directories: plan, carry out, report.

Nothing at or above the visible end of a partition is touched: neither what an open transaction has written,
nor what belongs to a commit that is not done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stratalog.clock import Clock
from stratalog.errors import StratalogError, UsageError
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.read.reading import PartitionView
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.topic_configs import altered_config
from stratalog.rewrite.compact.compact import Compact
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.manifest import Manifest, ManifestFile, PartitionEntry, new_rewrite_id
from stratalog.rewrite.operation import GroupRecorder, Rewrite, RewrittenGroup
from stratalog.rewrite.plan import RewritePlan, rewrite_end
from stratalog.rewrite.undo.keep import UndoKeeper
from stratalog.rewrite.undo.kept import find_kept
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress, TopicPartition

__all__ = [
    "PartitionRewrite",
    "RewriteOptions",
    "RewriteReport",
    "RewriteRun",
    "RewriteTarget",
    "Rewrites",
]

_IDS_MAX = 1000


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """How a rewrite runs.

    ``configs`` replace those of the topic for this run, such as ``{"segment.bytes": 1 << 30}``. ``roll``
    begins a new segment first, so that the active one is included. ``keep_undo`` keeps the originals until
    ``undo`` restores or drops them. ``manifest`` is a new file, outside the log directories, that lists every
    segment before and after.
    ``max_bytes`` and ``max_seconds`` end the run early; what was rewritten by then stays. Compaction has no
    limit of bytes. ``progress`` is
    called with the bytes done since the last call; ``is_stopped`` is asked several times a second.
    """

    configs: Mapping[str, object] = field(default_factory=dict)
    roll: bool = False
    keep_undo: bool = False
    manifest: str | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    progress: Progress | None = None
    is_stopped: Callable[[], bool] = _never

    def __post_init__(self) -> None:
        seconds = self.max_seconds
        if seconds is not None and not 0 < seconds < math.inf:
            raise UsageError(f"max_seconds is a number of seconds above 0, not {seconds!r}")

    def limits(self, clock: Clock) -> RewriteLimits:
        """Return the limits of a run that begins now."""
        seconds = self.max_seconds
        deadline = None if seconds is None else clock.monotonic_ms() + int(seconds * 1000)
        return RewriteLimits(
            deadline_ms=deadline,
            is_stopped=self.is_stopped,
            progress=self.progress,
            clock=clock,
        )

    def note(self, size_bytes: int) -> None:
        """Report progress, if anyone wants to know."""
        if self.progress is not None:
            self.progress(size_bytes)


@dataclass(frozen=True, slots=True)
class PartitionRewrite:
    """What a rewrite will do, or did, to one partition. ``groups`` are those that were rewritten;
    ``stopped`` says why others were not, and ``error`` what failed. ``plan`` is None if the partition could
    not be planned for."""

    topic_partition: TopicPartition
    plan: RewritePlan | None
    groups: tuple[RewrittenGroup, ...] = ()
    stopped: str | None = None
    error: StratalogError | None = None

    @property
    def bytes_before(self) -> int:
        return sum(group.result.old_bytes for group in self.groups)

    @property
    def bytes_after(self) -> int:
        return sum(group.result.new_bytes for group in self.groups)


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """What a rewrite did. ``id`` names it for ``undo``, if the originals are kept. ``manifest_error`` says
    why the manifest could not be written when the rewrite was done."""

    id: str
    verb: str
    partitions: tuple[PartitionRewrite, ...]
    manifest_error: StratalogError | None = None

    @property
    def errors(self) -> list[StratalogError]:
        """Everything that failed."""
        found = [*(each.error for each in self.partitions), self.manifest_error]
        return [error for error in found if error is not None]

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.partitions)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.partitions)

    def counts(self) -> dict[str, int]:
        """Return what was counted, in all partitions together."""
        total: dict[str, int] = {}
        for partition in self.partitions:
            for group in partition.groups:
                for name, count in group.counts.items():
                    total[name] = total.get(name, 0) + count
        return total


class RewriteTarget(NamedTuple):
    """A partition as it is when a rewrite of it is planned, for one that other processes carry out.

    ``root`` is its log directory. ``config`` has the configs of the run; ``index_limits`` are those of the
    topic itself. ``producers`` are known only if the log is open for writing.
    """

    topic_partition: TopicPartition
    root: str
    view: LogView
    config: LogConfig
    index_limits: IndexLimits
    producers: tuple[ProducerEntry, ...]


class Rewrites:
    """Plans rewrites of the partitions of a catalogue, and carries them out. Threads may share it."""

    def __init__(
        self,
        catalogue: Catalogue,
        partitions: OpenPartitions,
        views: PartitionViews,
        gate: AppendGate,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        self.catalogue = catalogue
        self.partitions = partitions
        self.views = views
        self.gate = gate
        self.file_system = file_system
        self.clock = clock

    def config(self, topic: str, options: RewriteOptions) -> LogConfig:
        """Return the configs that a rewrite of a topic goes by."""
        return self.config_with(topic, options.configs)

    def config_with(self, topic: str, changes: Mapping[str, object]) -> LogConfig:
        """Return the configs of a topic with some of them replaced, and the broker's defaults for others."""
        own = altered_config(self.catalogue.own_config(topic), changes)
        return self.catalogue.broker.log_config(own)

    def plan(
        self,
        rewrite: Rewrite,
        topic_partitions: Sequence[TopicPartition],
        options: RewriteOptions,
    ) -> Iterator[PartitionRewrite]:
        """Plan a rewrite of partitions, one after the other, without changing anything."""
        _check_limits(rewrite, options)
        left = options.max_bytes
        for each in topic_partitions:
            try:
                view = self.views.look([each])[0]
                plan = self.plan_view(rewrite, view, options, left, counts=True)
            except StratalogError as error:
                yield PartitionRewrite(each, None, error=error)
                continue
            left = None if left is None else left - plan.size_bytes
            yield PartitionRewrite(each, plan)

    def plan_view(
        self,
        rewrite: Rewrite,
        looked: PartitionView,
        options: RewriteOptions,
        bytes_max: int | None,
        *,
        counts: bool,
    ) -> RewritePlan:
        """Plan a rewrite of one partition. Damage in its end is raised: what follows it is not known."""
        if looked.damage is not None:
            raise looked.damage
        view = looked.view
        config = self.config(looked.topic_partition.topic, options)
        end = rewrite_end(view, view.log_end)
        progress = options.note if counts else _silent
        return rewrite.plan(view, config, end, progress, counts=counts).within(bytes_max)

    def begin(
        self,
        rewrite: Rewrite,
        topic_partitions: Sequence[TopicPartition],
        options: RewriteOptions,
    ) -> RewriteRun:
        """Prepare a rewrite of partitions; nothing is changed before ``run``."""
        _check_limits(rewrite, options)
        for each in topic_partitions:
            self.config(each.topic, options)  # UsageError if a config is not one
        return RewriteRun(self, rewrite, topic_partitions, options)

    def look(self, topic_partition: TopicPartition, options: RewriteOptions) -> RewriteTarget:
        """Return a partition as a rewrite of it finds it. Damage in its end is raised."""
        if options.roll:
            with self.gate:
                self.partitions.get(topic_partition).roll()
        looked = self.views.look([topic_partition])[0]
        if looked.damage is not None:
            raise looked.damage
        own = self.catalogue.config(topic_partition.topic)
        return RewriteTarget(
            topic_partition,
            self.catalogue.directory(topic_partition).root,
            looked.view,
            self.config(topic_partition.topic, options),
            IndexLimits(own.index_interval_bytes, own.segment_index_bytes),
            () if looked.log is None else tuple(looked.log.producers),
        )

    def folder(self, topic_partition: TopicPartition) -> str:
        """Return the folder of a partition."""
        return self.catalogue.directory(topic_partition).folder(topic_partition)

    def new_id(self, verb: str, topic_partitions: Sequence[TopicPartition]) -> str:
        """Return an id that no rewrite of these partitions has whose originals are kept."""
        wanted = new_rewrite_id(verb, self.clock.now_ms())
        taken = {
            kept.id
            for each in topic_partitions
            for kept in find_kept(self.file_system, self.folder(each))
        }
        ids = [wanted, *(f"{wanted}-{number}" for number in range(2, _IDS_MAX))]
        return next(each for each in ids if each not in taken)


def _check_limits(rewrite: Rewrite, options: RewriteOptions) -> None:
    if options.max_bytes is not None and isinstance(rewrite, Compact):
        raise UsageError(
            "max_bytes has no meaning for compaction, which is complete only when all segments were read: "
            "limit it by max_seconds, or name fewer partitions"
        )


def _silent(_: int) -> None:
    return


class RewriteRun:
    """A rewrite of some partitions that is carried out once. ``report`` says what was done so far, also after
    an interruption."""

    def __init__(
        self,
        rewrites: Rewrites,
        rewrite: Rewrite,
        topic_partitions: Sequence[TopicPartition],
        options: RewriteOptions,
    ) -> None:
        self._rewrites = rewrites
        self._rewrite = rewrite
        self._topic_partitions = topic_partitions
        self._options = options
        self._limits = options.limits(rewrites.clock)
        self._bytes_left = options.max_bytes
        self._done: list[PartitionRewrite] = []
        self._manifest = Manifest(
            rewrites.new_id(rewrite.verb, topic_partitions),
            rewrite.verb,
            rewrites.clock.now_ms(),
            {**rewrite.options(), **{str(k): str(v) for k, v in options.configs.items()}},
        )
        self._manifest_file: ManifestFile | None = None
        self._manifest_error: StratalogError | None = None
        if options.manifest is not None:
            self._manifest_file = ManifestFile(rewrites.file_system, options.manifest)
            self._manifest_file.check(rewrites.catalogue.roots)

    @property
    def report(self) -> RewriteReport:
        manifest = self._manifest
        return RewriteReport(manifest.id, manifest.verb, tuple(self._done), self._manifest_error)

    def run(self) -> RewriteReport:
        """Rewrite every partition, and write the manifest. An error in one partition does not keep others
        from being rewritten; it is in the report, and so is one of the manifest at the end. If the manifest
        cannot be created, nothing is rewritten. An interruption is raised again, when the manifest is
        written."""
        if self._manifest_file is not None:
            self._manifest_file.create(self._manifest)
        try:
            for each in self._topic_partitions:
                if not self._run_one(each):
                    break
        finally:
            self._write_manifest()
        return self.report

    def _run_one(self, topic_partition: TopicPartition) -> bool:
        """Rewrite a partition; return whether there is time for another."""
        recorder = self._recorder(topic_partition)
        plan: RewritePlan | None = None
        stopped: str | None = None
        error: StratalogError | None = None
        try:
            log, plan = self._plan(topic_partition)
            for _ in self._rewritten(topic_partition, log, plan, recorder):
                self._rewrites.partitions.remove_later(log)
        except RewriteStoppedError as reason:
            stopped = str(reason)
        except StratalogError as raised:
            error = raised
        except KeyboardInterrupt:
            stopped = "interrupted"
            raise
        finally:
            self._done.append(
                PartitionRewrite(topic_partition, plan, tuple(recorder.done), stopped, error)
            )
            self._note(topic_partition, recorder.done)
        if self._bytes_left is not None and plan is not None:
            self._bytes_left -= plan.size_bytes
        return stopped is None

    def _plan(self, topic_partition: TopicPartition) -> tuple[PartitionLog, RewritePlan]:
        self._limits.check()
        rewrites = self._rewrites
        log = rewrites.partitions.get(topic_partition)
        if self._options.roll:
            with rewrites.gate:
                log.roll()
        view = rewrites.views.look([topic_partition])[0]
        plan = rewrites.plan_view(
            self._rewrite, view, self._options, self._bytes_left, counts=False
        )
        return log, plan

    def _recorder(self, topic_partition: TopicPartition) -> GroupRecorder:
        keeper = None
        if self._options.keep_undo:
            alone = replace(self._manifest, partitions=())  # each partition can be undone by itself
            folder = self._rewrites.folder(topic_partition)
            keeper = UndoKeeper(self._rewrites.file_system, folder, topic_partition, alone)
        return GroupRecorder(keeper, describes=self._options.manifest is not None)

    def _rewritten(
        self,
        topic_partition: TopicPartition,
        log: PartitionLog,
        plan: RewritePlan,
        recorder: GroupRecorder,
    ) -> Iterator[RewrittenGroup]:
        if not plan.groups:
            return iter(())
        config = self._rewrites.config(topic_partition.topic, self._options)
        return self._rewrite.carry_out(log, plan, config, self._limits, recorder)

    def _note(self, topic_partition: TopicPartition, groups: Sequence[RewrittenGroup]) -> None:
        entries = tuple(each.entry for each in groups if each.entry is not None)
        if entries:
            entry = PartitionEntry(*topic_partition, entries)
            self._manifest = self._manifest.with_partition(entry)

    def _write_manifest(self) -> None:
        if self._manifest_file is not None:
            try:
                self._manifest_file.write(self._manifest)
            except StratalogError as error:
                self._manifest_error = error
