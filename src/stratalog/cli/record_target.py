"""Where the records of ``produce`` go: a topic, and how much of them it got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stratalog.cli.record_lines import RecordLine
from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.logs import Logs
from stratalog.manager.write.acceptance import Acceptance
from stratalog.manager.write.records import PartitionChoice

__all__ = ["PARTITIONS_MAX", "RecordTarget", "very_many"]

#: A new topic gets no more than so many by itself: a wrong number must not fill the disk with folders.
PARTITIONS_MAX: Final = 1000


def very_many(partition: int) -> str:
    return (
        f"partition {partition} is one of very many: say how many the topic is to have with "
        "--partitions"
    )


class RecordTarget:
    """The topic that records go to.

    An append to several partitions may have written some of them when another one refuses a record. So a
    record that the topic may refuse is appended alone, and an error names its line. What was written is read
    from the ends of the logs: they are right also after an append that failed.
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
            self._take_turns(logs, lines)
        acceptance = Acceptance(logs.topic(self._topic).config, self._compression, logs.now_ms())
        for some in _apart(lines, acceptance):
            self._append(logs, some, acceptance.batch_bytes)
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

    def _take_turns(self, logs: Logs, lines: list[RecordLine]) -> None:
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


def _apart(lines: list[RecordLine], acceptance: Acceptance) -> Iterator[list[RecordLine]]:
    """Yield the lines in their order, together; each one that may be refused alone."""
    begin = 0
    for at, line in enumerate(lines):
        if not acceptance.is_certain(line.fields):
            if begin < at:
                yield lines[begin:at]
            yield [line]
            begin = at + 1
    if begin < len(lines):
        yield lines[begin:]
