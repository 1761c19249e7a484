"""Which topic and partition each row of a write goes to, and the rows in groups by that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.write.partitioner import NO_KEY, partitions_of_keys
from stratalog.records.arrow import rows_of
from stratalog.records.arrow_values import int64_array, numbers_of
from stratalog.storage.names import check_topic
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, Any]

__all__ = ["RowGroups"]

_SMALL: Final = 1 << 15  # what a 16-bit number can tell apart: those are sorted in one pass


class RowGroups:
    """Splits batches of rows by topic and partition, keeping the order within each.

    ``counts`` says how many partitions each topic has; ``new_count`` how many one gets that is not
    there yet. Where keys do not decide, each row goes to the next partition; where they do, rows without
    one go to one partition after the other, a batch to each: a few full batches cost less than many small.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        *,
        topic: str | None,
        new_count: int,
        by_key: bool,
        turn: int,
    ) -> None:
        self._counts = counts
        self._topic = topic
        self._new_count = new_count
        self._by_key = by_key
        self._turn = turn

    def count_of(self, topic: str) -> int:
        return self._counts.get(topic, self._new_count)

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Numbers | None]]:
        """The groups of a batch: the numbers of their rows, None for all. Nothing is copied: the columns
        are read row by row only when the records are made."""
        self._turn += 1
        if self._topic is not None:
            yield from self._of_topic(self._topic, batch, None)
            return
        index = batch.schema.get_field_index("topic")
        if index < 0:
            raise UsageError("no topic: a column topic, or the option topic, names it")
        topics = batch.column(index).dictionary_encode()
        if topics.null_count:
            raise InvalidRecordError("the topic of a row is null: every row needs one")
        try:
            names = topics.dictionary.to_pylist()
        except UnicodeDecodeError:
            raise InvalidRecordError("the topic of a row is not valid UTF-8") from None
        for number, rows in _grouped(numbers_of(topics.indices, "i4"), None):
            check_topic(names[number])
            yield from self._of_topic(names[number], batch, rows)

    def _of_topic(
        self, topic: str, batch: pa.RecordBatch, rows: Numbers | None
    ) -> Iterator[tuple[TopicPartition, Numbers | None]]:
        partitions = self._partitions(topic, batch, rows)
        if isinstance(partitions, int):
            yield TopicPartition(topic, partitions), rows
            return
        for number, part in _grouped(partitions, rows):
            yield TopicPartition(topic, number), part

    def _partitions(self, topic: str, batch: pa.RecordBatch, rows: Numbers | None) -> int | Numbers:
        """One number for all the rows, or one for each."""
        import numpy as np

        count = self.count_of(topic)
        named = _named_partitions(batch, rows)
        has_keys = self._by_key and batch.schema.get_field_index("key") >= 0
        if named is None and (count == 1 or (self._by_key and not has_keys)):
            return self._turn % count
        size = batch.num_rows if rows is None else len(rows)
        chosen = np.full(size, NO_KEY, np.int32)
        if not self._by_key:
            chosen[:] = (self._turn + np.arange(size)) % count
            self._turn = (self._turn + size) % count
        if has_keys and count > 1:
            partitions_of_keys(rows_of(batch, order=rows), count, chosen.data)
        chosen[chosen == NO_KEY] = self._turn % count
        if named is not None:
            numbers = numbers_of(named.cast(pa.int64()), "i8")
            is_given = numbers_of(named.is_valid().cast(pa.int8()), "?")
            wrong = is_given & ((numbers < 0) | (numbers >= count))
            if wrong.any():
                raise UsageError(
                    f"partition {numbers[wrong][0]} of topic {topic!r}: it has {count}, from 0 on"
                )
            chosen = np.where(is_given, numbers, chosen)
        return chosen


def _named_partitions(batch: pa.RecordBatch, rows: Numbers | None) -> pa.Array | None:
    """The partitions that the rows name themselves; None where no row does."""
    index = batch.schema.get_field_index("partition")
    if index < 0:
        return None
    named = batch.column(index) if rows is None else batch.column(index).take(int64_array(rows))
    return None if named.null_count == len(named) else named


def _grouped(numbers: Numbers, rows: Numbers | None) -> Iterator[tuple[int, Numbers | None]]:
    """``rows`` by their numbers, each group in the order in which its rows came."""
    import numpy as np

    if len(numbers) == 0:
        return
    if int(numbers.max()) < _SMALL:
        numbers = numbers.astype(np.int16)
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, rows
        return
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, ends):
        yield int(numbers[part[0]]), part if rows is None else rows[part]
