"""Which topic and partition each row of a write goes to, and the rows in groups by that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.records import kernel
from stratalog.records.arrow import rows_of
from stratalog.records.builder import refuse_row
from stratalog.storage.names import check_topic
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RowGroups"]

_SMALL: Final = 1 << 15  # what a 16-bit number can tell apart: those are sorted in one pass


class RowGroups:
    """Splits batches of rows by topic and partition, keeping the order within each.

    ``counts`` says how many partitions each topic has; ``new_count`` how many one gets that is not
    there yet. Rows without a key go to one partition after the other, a batch to each.
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

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The groups of a batch."""
        self._turn += 1
        if self._topic is not None:
            yield from self._of_topic(self._topic, batch)
            return
        index = batch.schema.get_field_index("topic")
        if index < 0:
            raise UsageError("no topic: a column topic, or the option topic, names it")
        topics = pc.dictionary_encode(batch.column(index))
        if topics.null_count:
            raise InvalidRecordError("the topic of a row is null: every row needs one")
        names = topics.dictionary.to_pylist()
        for number, rows in _grouped(batch, topics.indices.to_numpy(zero_copy_only=False)):
            check_topic(names[number])
            yield from self._of_topic(names[number], rows)

    def _of_topic(
        self, topic: str, batch: pa.RecordBatch
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        partitions = self._partitions(topic, batch)
        if isinstance(partitions, int):
            yield TopicPartition(topic, partitions), batch
            return
        for number, rows in _grouped(batch, partitions):
            yield TopicPartition(topic, number), rows

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> int | np.ndarray[Any, Any]:
        """One number for all rows, or one for each."""
        import numpy as np

        count = self.count_of(topic)
        index = batch.schema.get_field_index("partition")
        named = None if index < 0 else batch.column(index)
        if named is not None and named.null_count == len(named):
            named = None
        has_keys = self._by_key and batch.schema.get_field_index("key") >= 0
        if named is None and (count == 1 or not has_keys):
            return self._turn % count
        chosen = np.full(batch.num_rows, -1, np.int32)
        if has_keys and count > 1:
            reason = kernel.hash_keys(rows_of(batch), count, chosen.data)
            if reason:
                raise refuse_row(0, reason)
        chosen[chosen < 0] = self._turn % count
        if named is not None:
            given = named.cast(pa.int64())
            numbers = given.fill_null(0).to_numpy(zero_copy_only=False)
            is_given = given.is_valid().to_numpy(zero_copy_only=False)
            wrong = is_given & ((numbers < 0) | (numbers >= count))
            if wrong.any():
                raise UsageError(
                    f"partition {numbers[wrong][0]} of topic {topic!r}: it has {count}, from 0 on"
                )
            chosen = np.where(is_given, numbers, chosen)
        return chosen


def _grouped(
    batch: pa.RecordBatch, numbers: np.ndarray[Any, Any]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows by their numbers, each group in the order in which its rows came."""
    import numpy as np

    if len(numbers) == 0:
        return
    if int(numbers.max()) < _SMALL:
        numbers = numbers.astype(np.int16)
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, batch
        return
    order = np.argsort(numbers, kind="stable")
    ordered = batch.take(pa.array(order))
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    starts = [0, *ends.tolist()]
    for start, end in zip(starts, [*ends.tolist(), batch.num_rows], strict=True):
        yield int(numbers[order[start]]), ordered.slice(start, end - start)
