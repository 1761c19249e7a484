"""Undo rewrites in open log directories: list the originals that are kept, restore them, or drop them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import StorageError, UsageError
from stratalog.manager.rewrites import RewriteOptions, Rewrites
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.undo.kept import KeptOriginals, find_kept, forget_kept
from stratalog.rewrite.undo.restore import UndoPlan, check_undo, plan_undo, restore_group
from stratalog.types import TopicPartition

__all__ = ["KeptRewrite", "Undoing"]


@dataclass(frozen=True, slots=True)
class KeptRewrite:
    """The originals of a rewrite that are kept in one partition, and what undoing it would do; ``plan`` is
    None if that was not asked for."""

    topic_partition: TopicPartition
    kept: KeptOriginals
    plan: UndoPlan | None = None


class Undoing:
    """Finds and undoes rewrites whose originals are kept."""

    def __init__(self, rewrites: Rewrites) -> None:
        self._rewrites = rewrites

    def find(
        self, topic_partitions: Sequence[TopicPartition], rewrite_id: str | None = None
    ) -> list[KeptRewrite]:
        """Return what is kept in these partitions: of all rewrites, or of one."""
        files = self._rewrites.file_system
        return [
            KeptRewrite(each, kept)
            for each in topic_partitions
            for kept in find_kept(files, self._rewrites.folder(each))
            if rewrite_id in (None, kept.id)
        ]

    def plan(
        self, topic_partitions: Sequence[TopicPartition], rewrite_id: str
    ) -> list[KeptRewrite]:
        """Return what undoing a rewrite would do in each partition. UsageError if nothing is kept of it."""
        return [
            KeptRewrite(each.topic_partition, each.kept, self._plan(each))
            for each in self._found(topic_partitions, rewrite_id)
        ]

    def _found(
        self, topic_partitions: Sequence[TopicPartition], rewrite_id: str
    ) -> list[KeptRewrite]:
        found = self.find(topic_partitions, rewrite_id)
        if not found:
            raise UsageError(f"nothing is kept of a rewrite {rewrite_id!r}: 'undo' lists what is")
        return found

    def _plan(self, found: KeptRewrite) -> UndoPlan:
        looked = self._rewrites.views.look([found.topic_partition])[0]
        return plan_undo(self._rewrites.file_system, looked.view, found.kept)

    def undo(
        self,
        topic_partitions: Sequence[TopicPartition],
        rewrite_id: str,
        options: RewriteOptions,
    ) -> list[KeptRewrite]:
        """Restore the originals in every partition, and drop what was kept. UsageError, before anything is
        changed, if one of the partitions has changed since. Stopped half-way, it can be called again."""
        due = self.plan(topic_partitions, rewrite_id)
        for each in due:
            assert each.plan is not None
            check_undo(each.plan, each.kept)
        limits = options.limits(self._rewrites.clock)
        return [self._undo(each, limits) for each in due]

    def _undo(self, found: KeptRewrite, limits: RewriteLimits) -> KeptRewrite:
        files, partitions = self._rewrites.file_system, self._rewrites.partitions
        log = partitions.get(found.topic_partition)
        with log.rewriting():
            # Another rewrite may have come first. From here on none can.
            plan = plan_undo(files, log.view, found.kept)
            check_undo(plan, found.kept)
            self._forget_cleaning(found.topic_partition)
            for group in plan.groups:
                restore_group(log, found.kept, group, limits)
                partitions.remove_later(log)
            forget_kept(files, found.kept)
        return KeptRewrite(found.topic_partition, found.kept, plan)

    def _forget_cleaning(self, topic_partition: TopicPartition) -> None:
        """Have a log cleaned from its start again: what is restored may be from before its last cleaning."""
        with self._rewrites.partitions.lock:
            directory = self._rewrites.catalogue.directory(topic_partition)
            directory.cleaned_offsets.forget([topic_partition])

    def forget(
        self, topic_partitions: Sequence[TopicPartition], rewrite_id: str
    ) -> list[KeptRewrite]:
        """Drop what is kept of a rewrite, for good. The first error is raised after all were tried."""
        found = self._found(topic_partitions, rewrite_id)
        failures: list[StorageError] = []
        for each in found:
            try:
                forget_kept(self._rewrites.file_system, each.kept)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found
