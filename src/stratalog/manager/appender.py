"""Append what users have to the partitions of a topic, within a transaction or without one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.write.batches import append_rows
from stratalog.manager.write.records import PartitionChoice, partition_rows
from stratalog.manager.write.transactions import Transaction
from stratalog.records.builder import BatchOptions
from stratalog.storage.partition_log import AppendResult
from stratalog.types import TopicPartition

__all__ = ["Appender"]


class Appender:
    """Appends to the open partitions of a catalogue. Threads may share it."""

    def __init__(
        self, catalogue: Catalogue, partitions: OpenPartitions, clock: Clock, gate: AppendGate
    ) -> None:
        self._catalogue = catalogue
        self._partitions = partitions
        self._clock = clock
        self._gate = gate
        self._turn = 0
        #: Held while a transaction joins a partition, and while a topic is being deleted.
        self.joining = threading.Lock()

    def append(
        self, topic: str, data: Any, partition: int | None, options: BatchOptions, *, sync: bool
    ) -> dict[int, AppendResult]:
        """Append records; return the result of each partition that got some. With ``sync``, when they are
        on the disk, also those that went in before an error."""
        written: dict[int, AppendResult] = {}
        try:
            self._append(topic, data, partition, options, None, written)
        except BaseException:
            with suppress(StratalogError):  # the first error is the one to raise
                self._sync(topic, written if sync else ())
            raise
        self._sync(topic, written if sync else ())
        return written

    def append_within(
        self,
        transaction: Transaction,
        topic: str,
        data: Any,
        partition: int | None,
        options: BatchOptions,
    ) -> dict[int, AppendResult]:
        """Append records within a transaction, which syncs them when it ends."""
        written: dict[int, AppendResult] = {}
        try:
            self._append(topic, data, partition, options, transaction, written)
        except BaseException as error:
            transaction.fail_append(error, has_written=bool(written))
            raise
        return written

    def _sync(self, topic: str, partitions: Iterable[int]) -> None:
        for number in partitions:
            topic_partition = TopicPartition(topic, number)
            log = self._partitions.get(topic_partition)
            try:
                log.sync()
            except StratalogError as error:
                self._partitions.check_not_deleted(topic_partition, log, error)
                raise

    def _append(
        self,
        topic: str,
        data: Any,
        partition: int | None,
        options: BatchOptions,
        transaction: Transaction | None,
        written: dict[int, AppendResult],
    ) -> None:
        self._turn += 1
        choice = PartitionChoice(
            self._catalogue.partitions(topic), partition, self._turn,
            missing=self._catalogue.missing(topic),
        )  # fmt: skip
        for number, rows in partition_rows(data, choice, self._clock.now_ms):
            topic_partition = TopicPartition(topic, number)
            log = self._partitions.get(topic_partition)
            if transaction is not None:
                with self.joining:
                    self._catalogue.directory(topic_partition)  # it may have been deleted
                    transaction.join(topic_partition)

            def note(result: AppendResult, number: int = number) -> None:
                first = written.get(number, result).first_offset
                written[number] = result._replace(first_offset=first)

            try:
                append_rows(log, topic_partition, rows, options, transaction, note, self._gate)
            except StratalogError as error:
                self._partitions.check_not_deleted(topic_partition, log, error)
                raise
