"""What open log directories offer for rewriting: merge, recompress, erase, upgrade, reindex, and undo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from stratalog.manager.attempt import raise_first
from stratalog.manager.reindexing import PartitionReindex, Reindexing
from stratalog.manager.rewrites import (
    PartitionRewrite,
    RewriteOptions,
    RewriteReport,
    RewriteRun,
    Rewrites,
    RewriteTarget,
)
from stratalog.manager.undoing import KeptRewrite, Undoing
from stratalog.records.layout import Codec
from stratalog.rewrite.operation import Rewrite
from stratalog.types import TopicPartition

__all__ = ["RewritingLogs"]


class RewritingLogs(ABC):
    """Log directories whose partitions can be rewritten, while others append to them and read them."""

    _rewrites: Rewrites

    @abstractmethod
    def topic_partitions(
        self, topic: str, partitions: int | Iterable[int] | None
    ) -> list[TopicPartition]:
        """Return the partitions that are named: all, one, or several."""

    @abstractmethod
    def _check_open(self) -> None: ...
    @abstractmethod
    def _check_writable(self) -> None: ...

    def folder(self, topic_partition: TopicPartition) -> str:
        """Return the folder of a partition."""
        return self._rewrites.folder(topic_partition)

    def plan_rewrite(
        self,
        rewrite: Rewrite,
        topic_partitions: Sequence[TopicPartition],
        options: RewriteOptions | None = None,
    ) -> Iterator[PartitionRewrite]:
        """Plan a rewrite, such as ``Merge()``, of partitions, one after the other. Changes nothing, and works
        on logs that are open read-only."""
        self._check_open()
        return self._rewrites.plan(rewrite, topic_partitions, options or RewriteOptions())

    def rewrite_target(
        self, topic_partition: TopicPartition, options: RewriteOptions | None = None
    ) -> RewriteTarget:
        """Return a partition as it is now, for a rewrite that other processes carry out. It works on logs
        that are open read-only, unless ``options`` ask to roll."""
        given = options or RewriteOptions()
        if given.roll:
            self._check_writable()
        self._check_open()
        return self._rewrites.look(topic_partition, given)

    def new_rewrite_id(self, verb: str, topic_partitions: Sequence[TopicPartition]) -> str:
        """Return an id that no rewrite of these partitions has whose originals are kept."""
        return self._rewrites.new_id(verb, topic_partitions)

    def begin_rewrite(
        self,
        rewrite: Rewrite,
        topic_partitions: Sequence[TopicPartition],
        options: RewriteOptions | None = None,
    ) -> RewriteRun:
        """Prepare a rewrite of partitions; its ``run`` carries it out, while others append and read."""
        self._check_writable()
        return self._rewrites.begin(rewrite, topic_partitions, options or RewriteOptions())

    def _rewrite(
        self,
        rewrite: Rewrite,
        topic: str,
        partitions: int | Iterable[int] | None,
        options: RewriteOptions | None,
    ) -> RewriteReport:
        named = self.topic_partitions(topic, partitions)
        report = self.begin_rewrite(rewrite, named, options).run()
        raise_first(report.errors)
        return report

    def merge(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        options: RewriteOptions | None = None,
    ) -> RewriteReport:
        """Merge small neighbouring segments into full ones. Every record keeps its offset, and batches are
        copied byte for byte."""
        from stratalog.rewrite.merge import Merge

        return self._rewrite(Merge(), topic, partitions, options)

    def recompress(
        self,
        topic: str,
        codec: Codec | str,
        partitions: int | Iterable[int] | None = None,
        *,
        level: int | None = None,
        force: bool = False,
        options: RewriteOptions | None = None,
    ) -> RewriteReport:
        """Give batches another codec; ``"none"`` decompresses them. Batches that have the codec already are
        copied, unless ``force`` asks for another level. Messages of magic 0 and 1 cannot hold zstd, and are
        left as they are."""
        from stratalog.rewrite.recompress import Recompress, codec_named

        named = codec if isinstance(codec, Codec) else codec_named(codec)
        return self._rewrite(Recompress(named, level, force=force), topic, partitions, options)

    def erase(
        self,
        topic: str,
        keys: Iterable[bytes | str] = (),
        partitions: int | Iterable[int] | None = None,
        *,
        condition: str | None = None,
        options: RewriteOptions | None = None,
    ) -> RewriteReport:
        """Erase the records with one of these keys, and those that meet a condition, such as ``"value like
        '%ada%' or header.user = 'ada'"``. Text stands for its UTF-8. Tombstones, records of aborted
        transactions and messages inside wrappers go as well. The active segment is not searched, unless
        ``options.roll`` rolls it first."""
        from stratalog.rewrite.erase.condition import parse_condition
        from stratalog.rewrite.erase.erasure import Erase
        from stratalog.rewrite.erase.keys import KeySet
        from stratalog.rewrite.erase.search import Targets

        named = KeySet.of(keys)
        parsed = None if condition is None else parse_condition(condition)
        return self._rewrite(Erase(Targets(named, parsed)), topic, partitions, options)

    def upgrade(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        options: RewriteOptions | None = None,
    ) -> RewriteReport:
        """Turn messages of magic 0 and 1 into batches of magic 2, with the same offsets, timestamps and
        codecs."""
        from stratalog.rewrite.upgrade import Upgrade

        return self._rewrite(Upgrade(), topic, partitions, options)

    def plan_reindex(
        self,
        topic_partitions: Sequence[TopicPartition],
        *,
        options: RewriteOptions | None = None,
    ) -> Iterator[PartitionReindex]:
        """Compare the indexes, transaction indexes and snapshots of partitions with their logs. Changes
        nothing, and works on logs that are open read-only."""
        self._check_open()
        chosen = options or RewriteOptions()
        return Reindexing(self._rewrites, chosen, force=False).plan(topic_partitions)

    def begin_reindex(
        self,
        topic_partitions: Sequence[TopicPartition],
        *,
        force: bool = False,
        options: RewriteOptions | None = None,
    ) -> Iterator[PartitionReindex]:
        """Rebuild the indexes of partitions, one after the other, as the result is iterated."""
        self._check_writable()
        chosen = options or RewriteOptions()
        return Reindexing(self._rewrites, chosen, force=force).run(topic_partitions)

    def reindex(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        force: bool = False,
        options: RewriteOptions | None = None,
    ) -> list[PartitionReindex]:
        """Rebuild indexes, transaction indexes and producer snapshots that are missing or wrong from the log;
        with ``force``, all of them. Return what was wrong. The active segment is left out, unless
        ``options.roll`` rolls it first."""
        named = self.topic_partitions(topic, partitions)
        done = list(self.begin_reindex(named, force=force, options=options))
        raise_first([each.error for each in done if each.error is not None])
        return done

    def kept_rewrites(
        self, topic_partitions: Sequence[TopicPartition] | None = None
    ) -> list[KeptRewrite]:
        """Return the rewrites whose originals are kept (``RewriteOptions.keep_undo``)."""
        self._check_open()
        return Undoing(self._rewrites).find(self._all_or(topic_partitions))

    def plan_undo(
        self, rewrite_id: str, topic_partitions: Sequence[TopicPartition] | None = None
    ) -> list[KeptRewrite]:
        """Return what undoing a rewrite would do, or why it cannot be undone. Changes nothing."""
        self._check_open()
        return Undoing(self._rewrites).plan(self._all_or(topic_partitions), rewrite_id)

    def undo(
        self,
        rewrite_id: str,
        topic_partitions: Sequence[TopicPartition] | None = None,
        *,
        options: RewriteOptions | None = None,
    ) -> list[KeptRewrite]:
        """Restore the originals of a rewrite. UsageError, before anything is changed, if a partition has
        changed since."""
        self._check_writable()
        named = self._all_or(topic_partitions)
        return Undoing(self._rewrites).undo(named, rewrite_id, options or RewriteOptions())

    def forget_rewrite(
        self, rewrite_id: str, topic_partitions: Sequence[TopicPartition] | None = None
    ) -> list[KeptRewrite]:
        """Drop the originals of a rewrite, for good."""
        self._check_writable()
        return Undoing(self._rewrites).forget(self._all_or(topic_partitions), rewrite_id)

    def _all_or(
        self, topic_partitions: Sequence[TopicPartition] | None
    ) -> Sequence[TopicPartition]:
        if topic_partitions is not None:
            return topic_partitions
        return sorted(self._rewrites.catalogue.directory_of)
