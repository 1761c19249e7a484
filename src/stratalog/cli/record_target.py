"""Where the records of ``produce`` go: a topic, and how much of them it got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stratalog.cli.record_lines import RecordFields, RecordLine
from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.logs import Logs
from stratalog.manager.write.batches import batch_options, fit_sizes
from stratalog.manager.write.records import PartitionChoice
from stratalog.records.builder import BATCH_BYTES
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.log_config import LogConfig

__all__ = ["PARTITIONS_MAX", "RecordTarget", "very_many"]

#: A new topic gets no more than so many by itself: a wrong number must not fill the disk with folders.
PARTITIONS_MAX: Final = 1000

#: What a record and a header have besides their bytes, at most: lengths, deltas, attributes.
_RECORD_BYTES: Final = 36
_HEADER_BYTES: Final = 10
_CHARACTER_BYTES: Final = 4
#: So near to the edge of what a topic takes, a time may be over it when the record is appended.
_TIME_MARGIN_MS: Final = 60_000


def very_many(partition: int) -> str:
    return (
        f"partition {partition} is one of very many: say how many the topic is to have with "
        "--partitions"
    )


class RecordTarget:
    """The topic that records go to.

    Of an append into several partitions some may be done when another is refused: a record that the topic
    may refuse is therefore appended alone, and its line known. What the topic got is asked of its logs:
    they know it also where an append was cut short.
    """

    def __init__(self, topic: str, partition: int | None, compression: str) -> None:
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._turn = 0
        self._partitions: tuple[int, ...] = (0,)
        self._choice = PartitionChoice(self._partitions)
        self._begins: dict[int, int] = {}  # where each log ended before it got anything
        #: A new topic of which nobody said how many partitions it has gets those that records name.
        self.may_grow = False

    def append(self, logs: Logs, lines: list[RecordLine]) -> None:
        """Append the lines up to the first that cannot be; UsageError names it."""
        error = None
        if self._partition is None:
            lines, error = self._with_partitions(logs, lines)
            self._place(logs, lines)
        doubts = _Doubts(logs.topic(self._topic).config, self._compression, logs.now_ms())
        for some in _apart(lines, doubts):
            self._append(logs, some, doubts.batch_bytes)
        if error is not None:
            raise error

    def _with_partitions(
        self, logs: Logs, lines: list[RecordLine]
    ) -> tuple[list[RecordLine], UsageError | None]:
        """The lines up to the first that names a partition which cannot be had, and that error."""
        known = set(logs.topic(self._topic).partitions)
        limit = PARTITIONS_MAX if self.may_grow else 0
        for at, (number, fields) in enumerate(lines):
            named = fields.get("partition")
            if named is not None and named not in known and named >= limit:
                lines, error = lines[:at], self._no_partition(number, named, len(known))
                break
        else:
            error = None
        wanted = {fields["partition"] for _, fields in lines if "partition" in fields}
        if not wanted <= known:
            logs.add_partitions(self._topic, max(wanted) + 1)
        return lines, error

    def _no_partition(self, number: int, named: int, known: int) -> UsageError:
        if self.may_grow:
            return UsageError(f"line {number}: {very_many(named)}")
        return UsageError(
            f"line {number}: topic {self._topic!r} has no partition {named}: it has {known}; name one "
            "for all records with -p"
        )

    def _place(self, logs: Logs, lines: list[RecordLine]) -> None:
        """Give the partition in turn to those that have neither a partition nor a key."""
        there = logs.topic(self._topic).partitions
        if there != self._partitions:
            self._partitions, self._choice = there, PartitionChoice(there)
        self._turn += 1
        next_one = there[self._turn % len(there)]
        for _, fields in lines:
            if fields.get("key") is None:
                fields.setdefault("partition", next_one)

    def _append(self, logs: Logs, lines: list[RecordLine], batch_bytes: int) -> None:
        for number in self._goals(lines) - self._begins.keys():
            self._begins[number] = logs.partition(self._topic, number).log_end
        try:
            logs.append_by_partition(
                self._topic,
                [fields for _, fields in lines],
                partition=self._partition,
                codec=self._compression,
                batch_bytes=batch_bytes,
                sync=False,  # closing does it, once
            )
        except InvalidRecordError as error:
            raise _refused(lines, error) from None

    def _goals(self, lines: list[RecordLine]) -> set[int]:
        """The partitions that the lines go to."""
        if self._partition is not None:
            return {self._partition}
        choose = self._choice.of
        return {choose(fields.get("key"), fields.get("partition")) for _, fields in lines}

    def rows(self, logs: Logs) -> list[tuple[object, ...]]:
        """For each partition that got records: how many, the first and the last offset."""
        ends = {each: logs.partition(self._topic, each).log_end for each in sorted(self._begins)}
        return [
            (self._topic, each, end - begin, begin, end - 1)
            for each, end in ends.items()
            if end > (begin := self._begins[each])
        ]


def _refused(lines: list[RecordLine], error: InvalidRecordError) -> UsageError:
    first, last = lines[0].number, lines[-1].number
    if first != last:
        return UsageError(f"line {first} to {last}: {error}")
    _, what = next(iter(error.record_errors), (0, None))
    return UsageError(f"line {first}: " + (str(error) if what is None else f"the record {what}"))


class _Doubts:
    """Tells the records that a topic takes for sure from those that it may refuse."""

    def __init__(self, config: LogConfig, compression: str, now_ms: int) -> None:
        rules = AppendRules.of(config)
        options = batch_options(compression, None, BATCH_BYTES)
        if rules.codec:  # the log compresses anew what came without
            options = replace(options, codec=rules.codec)
        #: Batches of this size are never too large, whatever is in them.
        self.batch_bytes = fit_sizes(config, options).batch_bytes
        self._needs_key = rules.needs_key
        self._takes_any_time = rules.append_time
        self._now_ms = now_ms
        self._earliest = now_ms - rules.before_max_ms + _TIME_MARGIN_MS
        self._latest = now_ms + rules.after_max_ms - _TIME_MARGIN_MS

    def may_refuse(self, fields: RecordFields) -> bool:
        if self._needs_key and fields.get("key") is None:
            return True
        time_ms = fields.get("timestamp", self._now_ms)
        if not self._takes_any_time and not self._earliest <= time_ms <= self._latest:
            return True
        return _size_max(fields) > self.batch_bytes


def _size_max(fields: RecordFields) -> int:
    """No less than a record takes in a batch."""
    size = _RECORD_BYTES + len(fields.get("key") or b"") + len(fields.get("value") or b"")
    for key, value in fields.get("headers") or ():
        size += _HEADER_BYTES + _CHARACTER_BYTES * len(key) + len(value or b"")
    return size


def _apart(lines: list[RecordLine], doubts: _Doubts) -> Iterator[list[RecordLine]]:
    """The lines in their order, together; each that may be refused alone."""
    begin = 0
    for at, line in enumerate(lines):
        if doubts.may_refuse(line.fields):
            if begin < at:
                yield lines[begin:at]
            yield [line]
            begin = at + 1
    if begin < len(lines):
        yield lines[begin:]
