"""What users append, as records: every way to write one, and one typed error for what is none."""

from __future__ import annotations

from collections import UserDict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import InvalidRecordError, StratalogError, UsageError
from stratalog.manager.read.reading import StoredRecord
from stratalog.manager.write.partitioner import partition_of_key
from stratalog.manager.write.records import PartitionChoice, partition_rows, record_of
from stratalog.records.builder import BatchBuilder
from stratalog.records.columns import decode_records
from stratalog.records.layout import TimestampType
from stratalog.records.model import Record, RecordHeader

NOW = 1_700_000_000_000
HEADER = RecordHeader("h", b"x")


def now() -> int:
    return NOW


def rows(data: Any, choice: PartitionChoice | None = None) -> dict[int, list[Record]]:
    """What would be appended to each partition."""
    found: dict[int, list[Record]] = {}
    for partition, part in partition_rows(data, choice or PartitionChoice((0,)), now):
        builder = BatchBuilder()
        builder.append(part)
        found.setdefault(partition, []).extend(decode_records(builder.out))
    return found


def plain(data: Any, choice: PartitionChoice | None = None) -> dict[int, list[tuple[Any, ...]]]:
    return {
        partition: [(r.key, r.value, r.timestamp, r.headers) for r in records]
        for partition, records in rows(data, choice).items()
    }


# --- one record ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"v", (None, b"v", NOW, ())),
        ("ä", (None, "ä".encode(), NOW, ())),
        (bytearray(b"v"), (None, b"v", NOW, ())),
        (memoryview(b"v"), (None, b"v", NOW, ())),
        (None, (None, None, NOW, ())),
        (b"", (None, b"", NOW, ())),
        (("k", "v"), (b"k", b"v", NOW, ())),
        ((None, None), (None, None, NOW, ())),
        ((b"", memoryview(b"v")), (b"", b"v", NOW, ())),
        ({"value": None}, (None, None, NOW, ())),
        ({"value": "v"}, (None, b"v", NOW, ())),
        ({"key": "k", "value": None, "timestamp": 5}, (b"k", None, 5, ())),
        ({"value": "v", "timestamp": None}, (None, b"v", NOW, ())),
        ({"value": "v", "timestamp": -1}, (None, b"v", -1, ())),
        ({"value": "v", "timestamp": -(2**63)}, (None, b"v", -(2**63), ())),
        ({"value": "v", "headers": None}, (None, b"v", NOW, ())),
        ({"value": "v", "headers": {"h": b"x"}}, (None, b"v", NOW, (HEADER,))),
        ({"value": "v", "headers": [("h", "x"), ["h", b"x"], HEADER]},
         (None, b"v", NOW, (HEADER, HEADER, HEADER))),
        ({"value": "v", "headers": [("", None)]}, (None, b"v", NOW, (RecordHeader("", None),))),
        ({"value": "v", "topic": "t", "offset": 9, "timestamp_type": 0}, (None, b"v", NOW, ())),
        (UserDict(value="v"), (None, b"v", NOW, ())),
        (MappingProxyType({"value": "v"}), (None, b"v", NOW, ())),
        (Record(b"v"), (None, b"v", NOW, ())),
        (Record(b"v", b"k", 7, (HEADER,), offset=9), (b"k", b"v", 7, (HEADER,))),
        (Record("v", "k", 7), (b"k", b"v", 7, ())),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_record_may_be_written_as(given, expected):
    assert plain([given]) == {0: [expected]}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (5, "int is not a record"),
        (("a", "b", "c"), "tuple is not a record"),
        (["a", "b"], "list is not a record"),
        (object(), "object is not a record"),
        ({"valeu": b"v"}, "no field 'valeu'"),
        ({5: b"v"}, "no field 5"),
        ({"value": 5}, "a value is bytes, text or None, not int"),
        ({"key": 1.5, "value": None}, "a key is bytes"),
        ({"value": {"a": 1}}, "a value is bytes, text or None, not dict"),
        ({"value": "\ud800"}, "a value cannot be UTF-8"),
        (("\udfff", b"v"), "a key cannot be UTF-8"),
        ({"value": b"v", "headers": {"\ud800": b"v"}}, "header's key cannot be UTF-8"),
        ({"value": b"v", "headers": {b"h": b"v"}}, "a header's key is text, not bytes"),
        ({"value": b"v", "headers": {"h": 5}}, "a header is bytes"),
        ({"value": b"v", "headers": 5}, "headers are pairs, not int"),
        ({"value": b"v", "headers": "ab"}, "headers are pairs, not str"),
        ({"value": b"v", "headers": [("a",)]}, "a header is a pair"),
        ({"value": b"v", "headers": ["ab"]}, "a header is a pair"),
        ({"value": b"v", "headers": [("a", b"b", b"c")]}, "a header is a pair"),
        ({"value": b"v", "timestamp": "now"}, "timestamp 'now' is not"),
        ({"value": b"v", "timestamp": 1.5}, "timestamp 1.5 is not"),
        ({"value": b"v", "timestamp": True}, "timestamp True is not"),
        ({"value": b"v", "timestamp": 2**63}, "is not a number of milliseconds"),
        ({"value": b"v", "timestamp": datetime(2024, 1, 1, tzinfo=UTC)}, "is not a number of"),
        (Record(5), "a value is bytes"),  # type: ignore[arg-type]
        (Record(b"", timestamp=2**70), "is not a number of milliseconds"),
    ],
)
def test_what_is_no_record_is_a_typed_error(given, match):
    with pytest.raises((InvalidRecordError, UsageError), match=match):
        rows([given])
    with pytest.raises(ValueError):
        rows([b"good", given])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
    | st.dictionaries(
        st.sampled_from(["key", "value", "headers", "timestamp", "partition", "x"]) | st.text(),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


@given(ANYTHING)
def test_whatever_is_given_is_appended_or_refused(given):
    try:
        found = rows([given], PartitionChoice((0, 1, 2)))
    except StratalogError:
        return
    assert sum(map(len, found.values())) == 1


def test_stored_record_goes_where_it_stood():
    stored = StoredRecord("t", 2, 9, 7, TimestampType.APPEND_TIME, b"k", None, (HEADER,))
    assert plain([stored], PartitionChoice((0, 1, 2))) == {2: [(b"k", None, 7, (HEADER,))]}


def test_time_is_asked_for_each_record():
    times = iter(range(100))
    found = list(partition_rows(["a", "b", "c"], PartitionChoice((0,)), lambda: next(times)))
    builder = BatchBuilder()
    builder.append(found[0][1])
    assert [record.timestamp for record in decode_records(builder.out)] == [0, 1, 2]


# --- many ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"v", "v", bytearray(b"v"), memoryview(b"v"), {"value": "v"}, Record(b"v")]
)
def test_one_record_need_not_be_in_a_list(data):
    assert [record.value for record in rows(data)[0]] == [b"v"]


@pytest.mark.parametrize("data", [None, 5, object()])
def test_what_cannot_be_gone_through_is_refused(data):
    with pytest.raises(UsageError, match="cannot be appended"):
        rows(data)


def test_lone_pair_is_refused_because_it_may_mean_two_things():
    with pytest.raises(UsageError, match="Put them into a list"):
        rows(("k", "v"))
    assert plain([("k", "v")]) == {0: [(b"k", b"v", NOW, ())]}
    assert plain(["k", "v"]) == {0: [(None, b"k", NOW, ()), (None, b"v", NOW, ())]}


def test_nothing_gives_nothing():
    assert rows([]) == rows(iter(())) == {}


@pytest.mark.parametrize("count", [1, 8191, 8192, 8193, 20_000])
def test_order_is_kept_within_each_partition(count):
    found = rows(((str(n), str(n)) for n in range(count)), PartitionChoice((0, 1, 2)))
    for records in found.values():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
    assert sum(map(len, found.values())) == count


# --- which partition -------------------------------------------------------------------------------


def test_named_partition_wins_then_the_records_own_then_its_key_then_the_turn():
    choice = PartitionChoice((0, 1, 2), None, turn=2)
    assert choice.of(b"key", 1) == 1
    assert choice.of(b"key") == partition_of_key(b"key", 3)
    assert choice.of(None) == 2
    assert choice.of(b"") == partition_of_key(b"", 3)  # an empty key is a key
    assert PartitionChoice((0, 1, 2), 0, turn=2).of(b"key", 1) == 0
    assert {PartitionChoice((0, 1, 2), None, turn).of(None) for turn in range(9)} == {0, 1, 2}


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("wrong", [-1, 3, "0", 1.0, True, b"0"])
def test_partition_that_is_not_there_is_refused(partitions, wrong):
    with pytest.raises(UsageError, match="no partition"):
        PartitionChoice(partitions, wrong)
    with pytest.raises(UsageError, match="no partition"):
        rows([{"value": "v", "partition": wrong}], PartitionChoice(partitions))


def test_numbers_of_numpy_are_numbers():
    np = pytest.importorskip("numpy")
    record = {"value": b"v", "partition": np.int32(1), "timestamp": np.int64(5)}
    assert plain([record], PartitionChoice((0, 1))) == {1: [(None, b"v", 5, ())]}


def test_key_is_not_placed_while_a_partition_is_missing():
    choice = PartitionChoice((0, 2), missing=(1,))
    with pytest.raises(UsageError, match="partition 1 is not here"):
        choice.of(b"key")
    assert choice.of(None) in (0, 2)
    assert choice.of(b"key", 2) == 2
    with pytest.raises(UsageError):
        PartitionChoice((0,), missing=(1,)).of(b"key")


def test_keys_that_are_remembered_are_not_more_than_may_be(monkeypatch):
    monkeypatch.setattr("stratalog.manager.write.records._KEYS_REMEMBERED", 3)
    choice = PartitionChoice((0, 1, 2, 3))
    for n in (0, 1, 2, 3, 4, 5, 0, 1, 5):
        assert choice.of(b"%d" % n) == partition_of_key(b"%d" % n, 4)
        assert len(choice._chosen) <= 3


def test_list_of_partitions_in_a_message_is_cut():
    with pytest.raises(UsageError, match=r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …$"):
        PartitionChoice(tuple(range(50)), 77)


# --- Arrow -----------------------------------------------------------------------------------------


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


def test_arrow_table_batch_reader_and_array():
    pa = arrow()
    batch = pa.record_batch({"key": [b"a", None], "value": ["x", None], "timestamp_ms": [5, None]})
    expected = {0: [(b"a", b"x", 5, ()), (None, None, NOW, ())]}

    class Array:
        """What speaks only of one array, as nanoarrow's do."""

        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return batch.__arrow_c_array__(requested_schema)

    for data in (
        batch,
        pa.Table.from_batches([batch]),
        pa.RecordBatchReader.from_batches(batch.schema, [batch]),
        batch.to_struct_array(),
        Array(),
    ):
        assert plain(data) == expected


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
def test_polars_frame(partitions):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "key": ["a", "b", None, "d"],
            "value": [b"1", b"2", None, b""],
            "headers": [[{"key": "h", "value": b"x"}], [], None, [{"key": "h", "value": None}] * 2],
            "codec": pl.Series(["x", "y", "z", "x"]).cast(pl.Categorical),  # not written
        }
    )
    expected = [
        (b"a", b"1", NOW, (HEADER,)), (b"b", b"2", NOW, ()), (None, None, NOW, ()),
        (b"d", b"", NOW, (RecordHeader("h", None),) * 2),
    ]  # fmt: skip
    found = plain(frame, PartitionChoice(partitions, turn=1))
    assert sorted(each for part in found.values() for each in part if each[0]) == sorted(
        each for each in expected if each[0]
    )
    assert len(found) == len(partitions) or len(found) > 1
    text = frame.select(pl.col("key").cast(pl.Categorical), pl.col("value"))
    assert sum(map(len, plain(text, PartitionChoice(partitions)).values())) == 4


def test_headers_as_a_map():
    pa = arrow()
    table = pa.table(
        {
            "key": ["a", "b", "c"],
            "value": pa.nulls(3),
            "headers": pa.array([[("h", b"x")], [], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    found = plain(table, PartitionChoice((0, 1, 2)))
    assert {each[0]: each[3] for part in found.values() for each in part} == {
        b"a": (HEADER,), b"b": (), b"c": (),
    }  # fmt: skip


def test_arrow_columns_choose_partitions_as_records_do():
    pa = arrow()
    keys = [None if n % 7 == 0 else str(n).encode() for n in range(500)]
    named = [n % 3 if n % 5 == 0 else None for n in range(500)]
    values = [str(n).encode() for n in range(500)]
    table = pa.table(
        {
            "key": keys,
            "value": values,
            "partition": pa.array(named, pa.int32()),
            "timestamp": [1] * 500,
        }
    )
    records = [
        {"key": k, "value": v, "partition": p, "timestamp": 1}
        for k, v, p in zip(keys, values, named, strict=True)
    ]
    choice = PartitionChoice((0, 1, 2), turn=1)
    assert plain(table, choice) == plain(records, choice)
    assert set(plain(table.drop_columns(["partition"]), choice)) == {0, 1, 2}


def test_arrow_rows_of_a_long_batch_stay_in_order():
    pa = arrow()
    count = 150_000
    table = pa.table({"value": [str(n) for n in range(count)]})
    found = rows(table)
    assert [int(record.value or b"") for record in found[0]] == list(range(count))


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"x": [1]}, "a record has no column 'x'"),
        ({"value": [1.5]}, "column 'value' is double"),
        ({"value": ["v"], "partition": [9]}, "no partition 9"),
        ({"value": ["v"], "partition": ["0"]}, "no partition '0'"),
        ({"value": ["v"], "timestamp": ["now"]}, "column 'timestamp' is string"),
        ({"value": ["v"], "key": [1.5]}, "is bytes, text or None|column 'key' is double"),
    ],
    ids=str,
)
@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_arrow_columns_that_cannot_be_records(columns, match, partitions):
    pa = arrow()
    with pytest.raises((UsageError, InvalidRecordError), match=match):
        rows(pa.table(columns), PartitionChoice(partitions))


def test_arrow_columns_of_one_name_are_refused():
    pa = arrow()
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(UsageError, match="2 columns are called 'value'"):
        rows(batch)


def test_arrow_stream_of_something_else_is_refused():
    pa = arrow()
    with pytest.raises(UsageError, match="does not hold records"):
        rows(pa.chunked_array([[1, 2, 3]]))


def test_record_of_says_the_partition_that_is_named():
    assert record_of({"value": b"v", "partition": 4}, now)[1] == 4
    assert record_of({"value": b"v"}, now)[1] is None
