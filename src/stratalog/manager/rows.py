"""What users append (records, mappings, Arrow columns) as rows for the builder, partition by partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.partitioner import partition_of_key
from stratalog.records import kernel
from stratalog.records.builder import rows_of_records
from stratalog.records.model import Record, RecordHeader
from stratalog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartitionChoice", "partition_rows", "record_of"]

#: Records are turned into rows so many at a time.
_RECORDS_AT_ONCE: Final = 8192
_FIELDS: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "offset", "topic"})


class PartitionChoice:
    """Chooses partitions: the one that was named, else by key, else in turn."""

    def __init__(self, partitions: tuple[int, ...], named: int | None, turn: int) -> None:
        if named is not None and named not in partitions:
            raise UsageError(f"no partition {named}: there are {_listed(partitions)}")
        self._partitions = partitions
        self.only = named if named is not None else partitions[0] if len(partitions) == 1 else None
        self._turn = partitions[turn % len(partitions)]

    def of(self, key: bytes | None, named: int | None = None) -> int:
        if named is not None and self.only is None:
            if named not in self._partitions:
                raise UsageError(f"no partition {named}: there are {_listed(self._partitions)}")
            return named
        if self.only is not None:
            return self.only
        if key is None:
            return self._turn
        return self._partitions[partition_of_key(key, len(self._partitions))]


def _listed(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions[:10])) + (", …" if len(partitions) > 10 else "")


def partition_rows(
    data: Any, choice: PartitionChoice, now_ms: int
) -> Iterator[tuple[int, kernel.Rows]]:
    """Rows for one partition after the other, in the order in which they were given. Records without
    a time get ``now_ms``, as a producer would give them."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        yield from _arrow_rows(data, choice, now_ms)
        return
    if isinstance(data, Record | Mapping | str | bytes | bytearray):
        data = (data,)
    if not isinstance(data, Iterable):
        raise UsageError(
            f"{type(data).__name__} cannot be appended: give records, mappings or Arrow columns"
        )
    pending: dict[int, list[Record]] = defaultdict(list)
    held = 0
    for each in data:
        record, named = record_of(each, now_ms)
        pending[choice.of(record.key, named)].append(record)
        held += 1
        if held == _RECORDS_AT_ONCE:
            yield from _take(pending)
            held = 0
    yield from _take(pending)


def _take(pending: dict[int, list[Record]]) -> Iterator[tuple[int, kernel.Rows]]:
    for partition in sorted(pending):
        yield partition, rows_of_records(pending[partition])
    pending.clear()


def record_of(given: Any, now_ms: int) -> tuple[Record, int | None]:
    """One record from what users write it as, and the partition that it names."""
    if isinstance(given, Record):
        timestamp = now_ms if given.timestamp == NO_TIMESTAMP else given.timestamp
        return Record(given.value, given.key, timestamp, given.headers), None
    if isinstance(given, Mapping):
        return _of_mapping(given, now_ms)
    if given is None or isinstance(given, str | bytes | bytearray | memoryview):
        return Record(_bytes(given, "value"), None, now_ms), None
    if isinstance(given, tuple) and len(given) == 2:
        return Record(_bytes(given[1], "value"), _bytes(given[0], "key"), now_ms), None
    raise UsageError(
        f"{type(given).__name__} is no record: give a Record, a mapping, bytes, text, or (key, value)"
    )


def _of_mapping(given: Mapping[str, Any], now_ms: int) -> tuple[Record, int | None]:
    unknown = [name for name in given if name not in _FIELDS]
    if unknown:
        raise UsageError(
            f"a record has no field {unknown[0]!r}: it has {', '.join(sorted(_FIELDS))}"
        )
    timestamp = given.get("timestamp", now_ms)
    if timestamp is None:
        timestamp = NO_TIMESTAMP
    if not isinstance(timestamp, int):
        raise InvalidRecordError(f"timestamp {timestamp!r} is not a number of milliseconds")
    headers = given.get("headers") or ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    record = Record(
        _bytes(given.get("value"), "value"),
        _bytes(given.get("key"), "key"),
        timestamp,
        tuple(RecordHeader(str(key), _bytes(value, "header")) for key, value in pairs),
    )
    return record, given.get("partition")


def _bytes(value: Any, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidRecordError(f"a {what} is bytes, text or None, not {type(value).__name__}")


def _arrow_rows(
    data: Any, choice: PartitionChoice, now_ms: int
) -> Iterator[tuple[int, kernel.Rows]]:
    import pyarrow as pa

    from stratalog.records.arrow import rows_of

    if isinstance(data, pa.RecordBatch):
        batches: Iterable[pa.RecordBatch] = (data,)
    else:
        batches = pa.RecordBatchReader.from_stream(data)
    for batch in batches:
        for partition, part in _split(batch, choice):
            if part.num_rows:
                yield partition, rows_of(part, default_timestamp=now_ms)


def _split(batch: pa.RecordBatch, choice: PartitionChoice) -> Iterator[tuple[int, pa.RecordBatch]]:
    import pyarrow as pa

    if choice.only is not None:
        yield choice.only, batch
        return
    partitions = _partition_column(batch, choice.of)
    for partition in sorted(set(partitions)):
        rows = [row for row, each in enumerate(partitions) if each == partition]
        yield partition, batch.take(pa.array(rows, pa.int32()))


def _partition_column(
    batch: pa.RecordBatch, choose: Callable[[bytes | None, int | None], int]
) -> list[int]:
    names = batch.schema.names
    named = batch.column("partition").to_pylist() if "partition" in names else None
    keys = batch.column("key").to_pylist() if "key" in names else [None] * batch.num_rows
    return [
        choose(_bytes(key, "key"), None if named is None else named[row])
        for row, key in enumerate(keys)
    ]
