"""``stratalog.open``: the partitions of one or several log directories, to be written and read.

A partition's log is opened when it is first used. Closing brings everything to the disk, writes the
checkpoints and the marker of an orderly stop; a crash before costs a recovery, and nothing that was
acknowledged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import StratalogError, UnknownPartitionError, UsageError
from stratalog.manager.directory import LogDirectory, read_small_file
from stratalog.manager.reading import LogRows, StoredRecord, tail_records
from stratalog.manager.rows import PartitionChoice, partition_rows
from stratalog.manager.topic_file import Topic, TopicFile
from stratalog.manager.transactions import Transaction, TransactionJournal
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.layout import Codec
from stratalog.storage.damage import OnDamage
from stratalog.storage.filesystem import FileSystem, OsFileSystem, replace_file
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_view import Isolation, LogView
from stratalog.storage.names import PARTITION_METADATA, TEMPORARY_SUFFIX, check_topic
from stratalog.storage.partition_log import AppendResult, PartitionLog, Watermark
from stratalog.storage.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    new_topic_id,
)
from stratalog.storage.producers import Origin
from stratalog.storage.read_only import open_view
from stratalog.types import TopicPartition

__all__ = ["Logs", "open_logs"]

#: Batches of one append are handed to the log in pieces of about this size.
_PIECE_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 128 << 10
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def open_logs(
    directories: Paths,
    *,
    read_only: bool = False,
    sync: bool = True,
    on_damage: OnDamage | str = OnDamage.REFUSE,
    file_system: FileSystem | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Logs:
    """Open one or several log directories: Kafka's ``log.dirs``. A folder that is empty, or not there,
    becomes a log directory.

    With ``sync`` an append is acknowledged when it is on the disk, and readers see it then; without, when
    the operating system has it. ``read_only`` needs no lock and changes nothing, also beside a writer.
    ``on_damage`` says what recovery does where sound records stand behind damaged ones.
    """
    listed = (directories,) if isinstance(directories, str | os.PathLike) else tuple(directories)
    if not listed:
        raise UsageError("no log directory to open")
    return Logs(
        [os.fspath(path) for path in listed],
        read_only=read_only,
        sync=sync,
        on_damage=OnDamage(on_damage),
        file_system=file_system or OsFileSystem(),
        clock=clock,
    )


class Logs:
    """Open log directories; see :func:`open_logs`. A context manager."""

    def __init__(
        self,
        roots: Sequence[str],
        *,
        read_only: bool,
        sync: bool,
        on_damage: OnDamage,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        self._file_system = file_system
        self._clock = clock
        self._read_only = read_only
        self._sync = sync
        self._on_damage = on_damage
        self._lock = threading.RLock()
        self._turn = 0
        self._open: dict[TopicPartition, PartitionLog] = {}
        self._is_closed = False
        with ExitStack() as opened:
            self._directories: list[LogDirectory] = []
            for root in roots:
                directory = LogDirectory(root, file_system, clock, read_only=read_only)
                opened.callback(directory.release)
                self._directories.append(directory)
            self._topic_files = [TopicFile(file_system, each.root) for each in self._directories]
            self._homes = self._find_partitions()
            self._journal = TransactionJournal(file_system, roots[0])
            if not read_only:
                self._complete_topics()
                self._journal.settle(self)
            opened.pop_all()

    def _find_partitions(self) -> dict[TopicPartition, int]:
        homes: dict[TopicPartition, int] = {}
        for number, directory in enumerate(self._directories):
            for place in directory.partitions():
                if place in homes:
                    raise UsageError(
                        f"{place} is in two log directories: {directory.root} and "
                        f"{self._directories[homes[place]].root}"
                    )
                homes[place] = number
        return homes

    def _complete_topics(self) -> None:
        """Make the folders of a topic whose creation was interrupted."""
        for number, topics in enumerate(self._topic_files):
            for topic in topics.topics.values():
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition)
                    if place not in self._homes:
                        self._make_folder(place, number, topic.topic_id)

    # Topics.

    def topics(self) -> dict[str, Topic]:
        """Every topic, by its name."""
        found: dict[str, list[int]] = {}
        for place in self._homes:
            found.setdefault(place.topic, []).append(place.partition)
        return {name: self._topic(name, found[name]) for name in sorted(found)}

    def topic(self, name: str) -> Topic:
        partitions = [place.partition for place in self._homes if place.topic == name]
        if not partitions:
            there = sorted({place.topic for place in self._homes})
            raise UnknownPartitionError(
                f"no topic {name!r}: "
                + (f"there are {', '.join(there[:10])}" if there else "there is none yet")
            )
        return self._topic(name, partitions)

    def _topic(self, name: str, partitions: list[int]) -> Topic:
        for topics in self._topic_files:
            known = topics.topics.get(name)
            if known is not None:
                return Topic(name, known.topic_id, tuple(sorted(partitions)), known.config)
        return Topic(name, None, tuple(sorted(partitions)))

    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        /,
        **names: object,
    ) -> Topic:
        """Create a topic. Configs go by Kafka's names, in a mapping (``{"retention.ms": 60000}``) or as
        keywords (``retention_ms=60000``). Each partition goes to the directory with fewest."""
        self._check_writable()
        check_topic(topic)
        if partitions < 1:
            raise UsageError(f"a topic has at least one partition, not {partitions}")
        config = LogConfig.of(configs, **names)
        with self._lock:
            if any(place.topic == topic for place in self._homes):
                raise UsageError(f"topic {topic!r} is there already")
            topic_id = new_topic_id()
            homes = self._choose_homes(partitions)
            # What is to be comes first: a crash from here on is completed by whoever opens next.
            for number in sorted(set(homes)):
                own = tuple(each for each, home in enumerate(homes) if home == number)
                self._topic_files[number].put(Topic(topic, topic_id, own, config))
            for partition, number in enumerate(homes):
                self._make_folder(TopicPartition(topic, partition), number, topic_id)
            return self.topic(topic)

    def add_partitions(self, topic: str, partitions: int) -> Topic:
        """Let a topic have at least so many partitions. Keys may go elsewhere from then on."""
        self._check_writable()
        with self._lock:
            known = self.topic(topic)
            missing = [each for each in range(partitions) if each not in known.partitions]
            topic_id = self.topic_id(topic) or new_topic_id()
            homes = dict(zip(missing, self._choose_homes(len(missing)), strict=True))
            for number in sorted(set(homes.values())):
                file = self._topic_files[number]
                own = file.topics.get(topic)
                listed = {
                    *(own.partitions if own else ()),
                    *(p for p, h in homes.items() if h == number),
                }
                file.put(Topic(topic, topic_id, tuple(sorted(listed)), known.config))
            for partition, number in homes.items():
                self._make_folder(TopicPartition(topic, partition), number, topic_id)
            return self.topic(topic)

    def _choose_homes(self, partitions: int) -> list[int]:
        counts = [0] * len(self._directories)
        for number in self._homes.values():
            counts[number] += 1
        homes = []
        for _ in range(partitions):
            number = counts.index(min(counts))
            counts[number] += 1
            homes.append(number)
        return homes

    def _make_folder(self, place: TopicPartition, number: int, topic_id: bytes | None) -> None:
        directory = self._directories[number]
        folder = directory.folder(place)
        self._file_system.make_dir(folder)
        if topic_id is not None:
            path = os.path.join(folder, PARTITION_METADATA)
            data = encode_partition_metadata(topic_id)
            replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, data)
        self._file_system.sync_dir(directory.root)
        self._homes[place] = number

    # Partitions.

    def partition(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of one partition, open for writing."""
        self._check_writable()
        place = TopicPartition(topic, partition)
        log = self._open.get(place)
        return self._open_log(place) if log is None else log

    def _open_log(self, place: TopicPartition) -> PartitionLog:
        with self._lock:
            log = self._open.get(place)
            if log is not None:
                return log
            directory = self._directory_of(place)
            folder = directory.folder(place)
            log = PartitionLog.open(
                folder,
                self._topic(place.topic, [place.partition]).config,
                file_system=self._file_system,
                clock=self._clock,
                recovery_point=max(directory.recovery_points.offsets.get(place, 0), 0),
                log_start=max(directory.log_starts.offsets.get(place, 0), 0),
                is_clean=directory.was_clean,
                on_damage=self._on_damage,
                watermark=Watermark.SYNCED if self._sync else Watermark.WRITTEN,
            )
            self._open[place] = log
            return log

    def _directory_of(self, place: TopicPartition) -> LogDirectory:
        number = self._homes.get(place)
        if number is None:
            topic = self.topic(place.topic)  # says so where the topic is unknown
            raise UnknownPartitionError(
                f"topic {place.topic!r} has no partition {place.partition}: there are "
                f"{', '.join(map(str, topic.partitions[:10]))}"
            )
        return self._directories[number]

    def _view(self, place: TopicPartition) -> LogView:
        """What a reader sees of a partition now."""
        if not self._read_only:
            return self.partition(*place).view
        directory = self._directory_of(place)
        return open_view(
            directory.folder(place),
            self._file_system,
            log_start=max(directory.log_starts.offsets.get(place, 0), 0),
            config=self._topic(place.topic, [place.partition]).config,
            now_ms=self._clock.now_ms(),
        )

    def places(self, topic: str, partitions: int | Iterable[int] | None) -> list[TopicPartition]:
        if partitions is None:
            return [TopicPartition(topic, each) for each in self.topic(topic).partitions]
        listed = (partitions,) if isinstance(partitions, int) else tuple(partitions)
        return [TopicPartition(topic, each) for each in listed]

    # Writing.

    def append(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = _BATCH_BYTES,
        sync: bool | None = None,
    ) -> list[AppendResult]:
        """Append records: Records, mappings, (key, value) pairs, bytes or text, or anything that speaks
        Arrow (``key``, ``value``, ``timestamp``, ``headers``, ``partition``). Without ``partition`` a
        record's own counts, then the hash of its key, then each call takes the next in turn.

        Answers one result for each partition that got records: its first and last offset.
        """
        written = self.append_by_partition(
            topic, data, partition=partition, codec=codec, level=level,
            batch_bytes=batch_bytes, sync=sync,
        )  # fmt: skip
        return [written[number] for number in sorted(written)]

    def append_by_partition(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = _BATCH_BYTES,
        sync: bool | None = None,
    ) -> dict[int, AppendResult]:
        """The same, with the results by partition."""
        options = BatchOptions(codec=_codec(codec), level=level, batch_bytes=batch_bytes)
        return self._append(topic, data, partition, options, None, sync)

    def _append(
        self,
        topic: str,
        data: Any,
        partition: int | None,
        options: BatchOptions,
        transaction: Transaction | None,
        sync: bool | None = None,
    ) -> dict[int, AppendResult]:
        self._check_writable()
        self._turn += 1
        choice = PartitionChoice(self.topic(topic).partitions, partition, self._turn)
        written: dict[int, AppendResult] = {}
        try:
            for number, rows in partition_rows(data, choice, self._clock.now_ms()):
                log = self.partition(topic, number)
                if transaction is not None:
                    transaction.join(TopicPartition(topic, number))
                builder = BatchBuilder(
                    options if transaction is None else transaction.options(log, options)
                )
                row = 0
                while row < rows.count:
                    row = builder.append(rows, row=row, out_bytes_max=_PIECE_BYTES)
                    result = log.append(builder.out, origin=Origin.CLIENT)
                    first = written.get(number, result).first_offset
                    written[number] = result._replace(first_offset=first)
                    builder.out.clear()
                    builder.next_offset = 0
                if transaction is not None:
                    transaction.advance(log, builder.next_sequence)
        finally:
            if sync is not False and (self._sync or sync):
                for number in written:
                    self.partition(topic, number).sync()
        return written

    def append_within(
        self,
        transaction: Transaction,
        topic: str,
        data: Any,
        partition: int | None,
        options: BatchOptions,
    ) -> list[AppendResult]:
        """The same within a transaction, which syncs when it ends."""
        written = self._append(topic, data, partition, options, transaction, sync=False)
        return [written[number] for number in sorted(written)]

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def transaction(self) -> Transaction:
        """Records in several topics and partitions that become visible together, or never:

        with logs.transaction() as txn:
            txn.append("orders", ...)
            txn.append("payments", ...)
        """
        self._check_writable()
        return Transaction(self, self._journal)

    # Reading.

    def read(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: int | None = None,
        end_time: int | None = None,
        columns: Sequence[str] | None = None,
        isolation: Isolation | str = Isolation.UNCOMMITTED,
        batch_rows: int = 65536,
    ) -> LogRows:
        """Records as they are now, from ``start`` up to ``end`` (offsets) and between two times
        (milliseconds). Iterate for Arrow record batches, or take ``records()`` or ``to_table()``."""
        places = self.places(topic, partitions)
        return LogRows(
            [(place, self._view(place)) for place in places],
            start=start,
            end=end,
            start_time=start_time,
            end_time=end_time,
            columns=columns,
            isolation=Isolation(isolation),
            batch_rows=batch_rows,
        )

    def tail(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: int | None = None,
        isolation: Isolation | str = Isolation.UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> Iterator[StoredRecord]:
        """Records as they come, from now on or from offset ``start``. Ends when none came for
        ``timeout_s``; without, never, but for the closing of the logs."""
        self._check_writable()
        logs = {place: self.partition(*place) for place in self.places(topic, partitions)}
        return tail_records(logs, start, Isolation(isolation), timeout_s)

    def earliest(self, topic: str, partition: int = 0) -> int:
        """The first offset that is there."""
        return self._view(TopicPartition(topic, partition)).log_start

    def latest(self, topic: str, partition: int = 0) -> int:
        """The offset that the next record will get."""
        return self._view(TopicPartition(topic, partition)).log_end

    # Looking after.

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Raise a partition's start to ``offset``, for good; where it is now. -1 means the end."""
        log = self.partition(topic, partition)
        log.advance_start(log.high_watermark if offset == -1 else offset)
        self.checkpoint()
        return log.log_start

    def retain(self) -> int:
        """Apply retention to every partition; how many segments went."""
        self._check_writable()
        gone = 0
        for place in list(self._homes):
            log = self.partition(*place)
            gone += len(log.retain().deletions)
            log.remove_due()
        self.checkpoint()
        return gone

    def flush(self) -> None:
        """Bring all to the disk, and write down that recovery need not look at it."""
        for log in list(self._open.values()):
            log.flush()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks into the roots."""
        self._check_writable()
        with self._lock:
            for number, directory in enumerate(self._directories):
                self._checkpoint(number, directory)

    def _checkpoint(self, number: int, directory: LogDirectory) -> None:
        logs = {place: log for place, log in self._open.items() if self._homes.get(place) == number}
        here = {place for place, home in self._homes.items() if home == number}

        def merged(
            old: dict[TopicPartition, int], new: dict[TopicPartition, int]
        ) -> dict[TopicPartition, int]:
            kept = {
                place: offset
                for place, offset in old.items()
                if place not in logs and (place in here or place not in self._homes)
            }
            return dict(sorted({**kept, **new}.items()))

        recovery = {place: log.recovery_point for place, log in logs.items()}
        starts = {
            place: log.log_start
            for place, log in logs.items()
            if log.log_start > log.segments[0].base_offset
        }
        marks = {place: log.high_watermark for place, log in logs.items()}
        directory.log_starts.write(merged(directory.log_starts.offsets, starts))
        directory.recovery_points.write(merged(directory.recovery_points.offsets, recovery))
        directory.high_watermarks.write(merged(directory.high_watermarks.offsets, marks))

    # The end.

    def close(self) -> None:
        """Close every log, write the checkpoints, mark the stop as orderly, let go of the locks."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                if not self._read_only:
                    self._close_all()
            finally:
                for directory in self._directories:
                    directory.release()

    def _close_all(self) -> None:
        failures: list[StratalogError] = []
        failed: set[int] = set()
        for place, log in self._open.items():
            try:
                log.close()
                log.remove_due(all_of_them=True)
                if log.failure is not None:
                    failed.add(self._homes[place])
            except StratalogError as error:
                failed.add(self._homes[place])
                failures.append(error)
        for number, directory in enumerate(self._directories):
            if number in failed:
                continue  # what its logs could not write, no checkpoint may claim
            self._checkpoint(number, directory)
            loaded = all(
                place in self._open for place, home in self._homes.items() if home == number
            )
            if directory.was_clean or loaded:
                directory.mark_clean()
        if failures:
            raise failures[0]

    def _check_writable(self) -> None:
        if self._is_closed:
            raise UsageError("these logs are closed")
        if self._read_only:
            raise UsageError("opened to be read only: open without read_only to write")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's id, from its file or a partition's; None where it has none."""
        known = self.topic(topic)
        if known.topic_id is not None:
            return known.topic_id
        place = TopicPartition(topic, known.partitions[0])
        path = os.path.join(self._directory_of(place).folder(place), PARTITION_METADATA)
        data = read_small_file(self._file_system, path)
        return None if data is None else decode_partition_metadata(data).topic_id


def _codec(codec: Codec | str) -> Codec:
    if isinstance(codec, str):
        if codec.lower() not in _CODECS:
            raise UsageError(f"no codec {codec!r}: there are {', '.join(_CODECS)}")
        return _CODECS[codec.lower()]
    return codec
