"""What users append (records, mappings, Arrow columns) as rows for the builder, partition by partition."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.read.reading import StoredRecord
from stratalog.manager.write.partitioner import NO_KEY, partition_of_key, partitions_of_keys
from stratalog.records import kernel
from stratalog.records.builder import rows_of_records
from stratalog.records.columns import COLUMN_NAMES
from stratalog.records.layout import INT32_MAX, INT64_MAX, INT64_MIN
from stratalog.records.model import Record, RecordHeader
from stratalog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartitionChoice", "partition_rows", "record_of", "whole_number"]

#: Records are turned into rows so many at a time, and Arrow rows are looked at so many at a time.
_RECORDS_AT_ONCE: Final = 8192
_ARROW_ROWS_AT_ONCE: Final = 65536
#: Fewer where they hold more than this: keys and values are cast to types of 32 bits, and copied for that.
_ARROW_BYTES_AT_ONCE: Final = 256 << 20
#: Keys come again, and hashing one costs more than all else that is done for its record.
_KEYS_REMEMBERED: Final = 65536
_USED: Final = ("key", "value", "headers", "timestamp", "partition")
#: Milliseconds, as ``read`` returns it next to ``timestamp``.
_EXACT_TIME: Final = "timestamp_ms"
_CAST: Final = ("key", "value", "headers")
#: Where a record was stored before: it gets a new place.
_PASSED_OVER: Final = ("topic", "offset", "timestamp_type")
_FIELDS: Final = frozenset({*_USED, *_PASSED_OVER})
#: What a frame may also have, because a scan gives it: that of the record's old batch is not written.
_COLUMNS: Final = frozenset({*_FIELDS, *COLUMN_NAMES})
#: How pandas hands over the index of a frame that was filtered or sorted.
_PANDAS_INDEX: Final = "__index_level_"
_TOMBSTONES: Final = "for a tombstone give it as None"

_Text = str | bytes | bytearray | memoryview
Now = Callable[[], int]


class PartitionChoice:
    """Chooses partitions: the one that was named, else by key, else in turn."""

    def __init__(
        self,
        partitions: tuple[int, ...],
        named: int | None = None,
        turn: int = 0,
        *,
        missing: tuple[int, ...] = (),
    ) -> None:
        self._partitions = partitions
        self._missing = missing
        if named is not None:
            named = self._check(named)
        self._named = named
        self._turn = partitions[turn % len(partitions)]
        #: There is no other partition to choose.
        self.is_single = len(partitions) == 1 and not missing
        self._chosen: dict[bytes, int] = {}

    @property
    def only(self) -> int | None:
        """The partition that all records go to, if it was named."""
        return self._named

    def of(self, key: bytes | None, named: object = None) -> int:
        if self._named is not None:
            return self._named
        if named is not None:
            return self._check(named)
        if key is None or self.is_single:
            return self._turn
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._choose(key)
        return chosen

    def _choose(self, key: bytes) -> int:
        if self._missing:
            raise self._untold()
        if len(self._chosen) == _KEYS_REMEMBERED:
            self._chosen.clear()
        chosen = self._partitions[partition_of_key(key, len(self._partitions))]
        self._chosen[key] = chosen
        return chosen

    def of_keys(self, rows: kernel.Rows) -> pa.Array:
        """Return the partition of every row by its key; null if it has none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        hashed = array("i", bytes(4 * rows.count))
        partitions_of_keys(rows, len(self._partitions), memoryview(hashed))
        numbers = pa.Array.from_buffers(pa.int32(), rows.count, [None, pa.py_buffer(hashed)])
        numbers = pc.if_else(pc.equal(numbers, NO_KEY), None, numbers)
        if self._missing and numbers.null_count < rows.count:
            raise self._untold()
        return pa.array(self._partitions, pa.int32()).take(numbers)

    def _untold(self) -> UsageError:
        return UsageError(
            f"partition {self._missing[0]} is not here: keys cannot be mapped to partitions; "
            "name one, or open all log directories"
        )

    def _check(self, partition: object) -> int:
        number = whole_number(partition)
        if number is None:
            is_there = False
        elif self._partitions[-1] == len(self._partitions) - 1:  # from 0 on, as nearly always
            is_there = 0 <= number < len(self._partitions)
        else:
            is_there = number in self._partitions
        if number is None or not is_there:
            raise UsageError(f"no partition {partition!r}: there are {_listed(self._partitions)}")
        return number


def whole_number(value: Any) -> int | None:
    """Return a whole number, also one of numpy's; None if it is not one."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def _listed(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions[:10])) + (", …" if len(partitions) > 10 else "")


def partition_rows(
    data: Any, choice: PartitionChoice, now: Now
) -> Iterator[tuple[int, kernel.Rows]]:
    """Yield rows for one partition after the other; those of one partition in the order in which they were
    given. Records without a timestamp get the present time, as from a producer."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        yield from _arrow_rows(data, choice, now)
        return
    pending: dict[int, list[Record]] = defaultdict(list)
    held = 0
    for each in _records(data):
        record, named = record_of(each, now)
        pending[choice.of(record.key, named)].append(record)
        held += 1
        if held == _RECORDS_AT_ONCE:
            yield from _take(pending)
            held = 0
    yield from _take(pending)


def _records(data: Any) -> Iterable[Any]:
    if isinstance(data, Record | StoredRecord | Mapping | _Text):
        return (data,)
    if isinstance(data, tuple) and len(data) == 2 and all(_is_text(each) for each in data):
        raise UsageError("a pair of key and value, or two values? Put them into a list")
    if not isinstance(data, Iterable):
        raise UsageError(
            f"{type(data).__name__} cannot be appended: give records, mappings or Arrow columns"
        )
    return data


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, _Text)


def _take(pending: dict[int, list[Record]]) -> Iterator[tuple[int, kernel.Rows]]:
    for partition in sorted(pending):
        yield partition, rows_of_records(pending[partition])
    pending.clear()


def record_of(given: Any, now: Now) -> tuple[Record, int | None]:
    """Return the record that a user gives in any of its forms, and the partition that it names."""
    if type(given) is dict:  # nearly always; asking for a Mapping costs
        return _of_mapping(given, now)
    if isinstance(given, Record):
        timestamp = now() if given.timestamp == NO_TIMESTAMP else given.timestamp
        return _record(given.value, given.key, timestamp, given.headers), None
    if isinstance(given, StoredRecord):
        record = _record(given.value, given.key, given.timestamp, given.headers)
        return record, given.partition
    if isinstance(given, Mapping):
        return _of_mapping(given, now)
    if _is_text(given):
        return _record(given, None, now(), ()), None
    if isinstance(given, tuple) and len(given) == 2:
        return _record(given[1], given[0], now(), ()), None
    raise UsageError(
        f"{type(given).__name__} is not a record: pass a Record, a mapping, bytes, text, or (key, value)"
    )


def _of_mapping(given: Mapping[str, Any], now: Now) -> tuple[Record, int | None]:
    if not _FIELDS.issuperset(given):
        name = next(name for name in given if name not in _FIELDS)
        raise UsageError(f"a record has no field {name!r}: it has {', '.join(_USED)}")
    if "value" not in given:
        raise UsageError(f"a record without 'value': {_TOMBSTONES}")
    timestamp = given.get("timestamp")
    record = _record(
        given["value"],
        given.get("key"),
        now() if timestamp is None else timestamp,
        given.get("headers") or (),
    )
    return record, given.get("partition")


def _record(value: Any, key: Any, timestamp: Any, headers: Any) -> Record:
    time_ms = timestamp if type(timestamp) is int else whole_number(timestamp)
    if time_ms is None or not INT64_MIN <= time_ms <= INT64_MAX:
        raise InvalidRecordError(f"timestamp {timestamp!r} is not a number of milliseconds")
    if isinstance(headers, tuple) and not headers:
        return Record(_bytes(value, "value"), _bytes(key, "key"), time_ms)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Iterable) or isinstance(pairs, _Text):
        raise InvalidRecordError(f"headers are pairs, not {type(headers).__name__}")
    return Record(
        _bytes(value, "value"), _bytes(key, "key"), time_ms, tuple(_header(each) for each in pairs)
    )


def _header(pair: Any) -> RecordHeader:
    if isinstance(pair, RecordHeader):
        key, value = pair.key, pair.value
    elif isinstance(pair, tuple | list) and len(pair) == 2:
        key, value = pair
    else:
        raise InvalidRecordError(f"a header is a pair of key and value, not {pair!r}")
    if not isinstance(key, str):
        raise InvalidRecordError(f"a header's key is text, not {type(key).__name__}")
    _bytes(key, "header's key")
    return RecordHeader(key, _bytes(value, "header"))


def _bytes(value: Any, what: str) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"a {what} cannot be UTF-8: {error.reason}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRecordError(f"a {what} is bytes, text or None, not {type(value).__name__}")


def _arrow_rows(data: Any, choice: PartitionChoice, now: Now) -> Iterator[tuple[int, kernel.Rows]]:
    from stratalog.records.arrow import rows_of

    for batch in _arrow_batches(data):
        _check_columns(batch.schema.names)
        for start in range(0, batch.num_rows, _ARROW_ROWS_AT_ONCE):
            for some in _slices(batch.slice(start, _ARROW_ROWS_AT_ONCE)):
                for partition, part in _split(_plain_columns(some), choice):
                    yield partition, rows_of(part, default_timestamp=now())


def _check_columns(names: list[str]) -> None:
    """Raise UsageError if these are not the columns of records. A misspelled column would be left out
    silently, and its records would be tombstones, or without a key."""
    for name in names:
        if name not in _COLUMNS and not name.startswith(_PANDAS_INDEX):
            raise UsageError(f"a record has no column {name!r}: it has {', '.join(_USED)}")
        if names.count(name) > 1:
            raise UsageError(f"{names.count(name)} columns are called {name!r}")
    if "value" not in names:
        raise UsageError(f"no column 'value': there are {', '.join(names)}; {_TOMBSTONES}")


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that can be cast. Arrow does not always raise if they cannot: 32-bit offsets
    wrap around."""
    names = batch.schema.names
    size = sum(_value_bytes(batch.column(name)) for name in _CAST if name in names)
    if size > _ARROW_BYTES_AT_ONCE and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _slices(batch.slice(0, half))
        yield from _slices(batch.slice(half))
    elif size > INT32_MAX:
        raise InvalidRecordError(f"a record of {size} bytes is above the limit of {INT32_MAX}")
    else:
        yield batch


def _value_bytes(column: pa.Array) -> int:
    """Return how many bytes of keys and values a column holds; 0 if its type keeps them below 2 GiB."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from stratalog.records.arrow import as_list

    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 0
    if pa.types.is_struct(kind):
        return sum(map(_value_bytes, column.flatten()))
    column = as_list(column)
    if pa.types.is_list(column.type) or pa.types.is_large_list(kind):
        return _value_bytes(column.flatten())
    if pa.types.is_dictionary(kind):
        lengths = _lengths(column.dictionary)
        lengths = None if lengths is None else lengths.take(column.indices)
    else:
        lengths = _lengths(column)
    return 0 if lengths is None else pc.sum(lengths).as_py() or 0


def _lengths(column: pa.Array) -> pa.Array | None:
    """Return the length of each value; None if the type has none, and is rejected later."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if len(column) == 0:  # Arrow may leave the buffers out
        return None
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        try:
            return pc.binary_length(column)
        except pa.ArrowException:
            return None
    # A view is four numbers of 32 bits, the first of which is the length.
    valid, views = column.buffers()[:2]
    count = column.offset + len(column)
    numbers = pa.Array.from_buffers(pa.int32(), 4 * count, [None, views])
    quads = pa.Array.from_buffers(
        pa.list_(pa.int32(), 4), len(column), [valid], offset=column.offset, children=[numbers]
    )
    return pc.list_element(quads, 0)


def _arrow_batches(data: Any) -> Iterable[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        return (data,)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
            return reader
        return (pa.record_batch(data),)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"the Arrow data does not hold records: {error}") from None


def _split(batch: pa.RecordBatch, choice: PartitionChoice) -> Iterator[tuple[int, pa.RecordBatch]]:
    import pyarrow.compute as pc

    named = choice.only
    if named is None and choice.is_single and "partition" not in batch.schema.names:
        named = choice.of(None)
    if named is not None:
        yield named, batch
        return
    partitions = _partition_column(batch, choice)
    chosen = sorted(pc.unique(partitions).to_pylist())
    for partition in chosen:
        yield (
            partition,
            batch if len(chosen) == 1 else batch.filter(pc.equal(partitions, partition)),
        )


def _plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of records in types that rows are read from; views, as in Polars, are cast. A column
    that cannot be cast stays as it is, and is rejected when the rows are written."""
    import pyarrow as pa

    from stratalog.records.arrow import HEADERS_TYPE

    kinds = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS_TYPE}
    columns = {}
    for name in batch.schema.names:
        if name not in (*_USED, _EXACT_TIME):
            continue
        column = batch.column(name)
        kind = kinds.get(name)
        if kind is not None and not pa.types.is_map(column.type):
            with suppress(pa.ArrowException):
                column = _cast(column, kind)
        columns[name] = column
    return pa.record_batch(columns)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    from stratalog.records.arrow import as_list

    if pa.types.is_dictionary(column.type):
        # The values of a whole dictionary may be too many for 32 bits, where those of the rows are not.
        column = column.dictionary.cast(pa.large_binary()).take(column.indices)
    column = as_list(column)
    if column.type != kind and column.get_total_buffer_size() > INT32_MAX:
        # A cast keeps offsets as they are: those of a late slice need more than 32 bits.
        column = pa.concat_arrays([column, column.slice(0, 0)])
    return column.cast(kind)


def _partition_column(batch: pa.RecordBatch, choice: PartitionChoice) -> pa.Array:
    """Return the partition of each row: the one that it names, else by its key, else the next in turn."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from stratalog.records.arrow import rows_of

    names = batch.schema.names
    count = batch.num_rows
    keys = batch.column("key") if "key" in names else pa.nulls(count, pa.binary())
    named = pa.nulls(count, pa.int32())
    if "partition" in names:
        column = batch.column("partition")
        checked = [
            choice.of(None, each) for each in pc.unique(column).to_pylist() if each is not None
        ]
        if checked:
            named = column.cast(pa.int32())
            keys = pc.if_else(named.is_valid(), pa.scalar(None, keys.type), keys)
    rows = rows_of(pa.record_batch({"key": keys}))
    rest = pa.scalar(choice.of(None), pa.int32())
    return pc.coalesce(named, choice.of_keys(rows), rest)
