"""Columns as Arrow, both ways: the types Spark accepts, slices, views, nulls, every unit of time."""

from __future__ import annotations

import gc
import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.records.arrow import ArrowBatches, arrow_schema, rows_of
from stratalog.records.builder import BatchBuilder, BatchOptions, build_batch
from stratalog.records.columns import (
    COLUMN_NAMES,
    DEFAULT_COLUMNS,
    RegionDecoder,
    Selection,
    column_mask,
)
from stratalog.records.layout import Codec, Ending
from stratalog.records.model import Record, RecordHeader

T = 1_700_000_000_000


def read(
    region: bytes,
    names: tuple[str, ...] = DEFAULT_COLUMNS,
    *,
    views: bool = False,
    rows: int = 65536,
) -> pa.Table:
    schema = arrow_schema(names, views=views)
    decoder = RegionDecoder(Selection(columns=column_mask(names), views=views, batch_rows=rows))
    made = ArrowBatches(schema, rows_max=rows)
    batches = []
    position = 0
    while True:
        pause = decoder.decode(region, position, len(region))
        batches += list(made.of(decoder.take()))
        position = pause.position
        if pause.ending != Ending.FULL:
            break
    assert pause.ending == Ending.END, pause
    table = pa.Table.from_batches(batches, schema=schema)
    table.validate(full=True)
    return table


def write(data: pa.RecordBatch, *, keep_offsets: bool = False, **options: object) -> bytes:
    builder = BatchBuilder(BatchOptions(**options))  # type: ignore[arg-type]
    builder.append(rows_of(data, keep_offsets=keep_offsets))
    return bytes(builder.out)


def test_types_are_those_that_spark_accepts() -> None:
    schema = arrow_schema(DEFAULT_COLUMNS)
    assert schema.types == [
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.int32(),
        pa.binary(),
        pa.binary(),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ]
    assert all(field.nullable for field in schema)
    views = arrow_schema(("key", "value"), views=True)
    assert views.types == [pa.binary_view()] * 2


def test_batch_level_columns() -> None:
    options = BatchOptions(
        codec=Codec.LZ4, producer_id=7, producer_epoch=3, base_sequence=2**31 - 1, leader_epoch=4,
        is_transactional=True,
    )  # fmt: skip
    first = build_batch(
        [Record(value=b"a", timestamp=T, offset=5), Record(value=b"b", offset=6)], options
    )
    second = build_batch([Record(value=b"c", timestamp=T, offset=9)])
    names = tuple(name for name in COLUMN_NAMES if name not in DEFAULT_COLUMNS)
    rows = read(first + second, names).to_pylist()
    assert rows[1] == {
        "position": 0, "base_offset": 5, "producer_id": 7, "producer_epoch": 3, "sequence": 0,
        "leader_epoch": 4, "codec": "lz4", "is_control": False, "is_transactional": True,
        "timestamp_ms": -1,
    }  # fmt: skip
    assert rows[2] == {
        "position": len(first), "base_offset": 9, "producer_id": -1, "producer_epoch": -1,
        "sequence": -1, "leader_epoch": -1, "codec": "none", "is_control": False,
        "is_transactional": False, "timestamp_ms": T,
    }  # fmt: skip


def test_timestamps_that_microseconds_cannot_hold_are_null_and_exact_in_milliseconds() -> None:
    times = [T, 2**63 - 1, -(2**63), 9223372036854775, 9223372036854776, -9223372036854776, -1]
    region = build_batch([Record(value=b"", timestamp=time) for time in times])
    table = read(region, ("timestamp", "timestamp_ms"))
    micros = table["timestamp"].cast(pa.int64()).to_pylist()
    assert micros == [T * 1000, None, None, 9223372036854775000, None, None, -1000]
    assert table["timestamp_ms"].to_pylist() == times


@pytest.mark.parametrize("codec", Codec)
def test_views_equal_copies_and_outlive_the_decoder(codec: Codec) -> None:
    records = [
        Record(key=None if i % 4 == 0 else b"k" * (i % 20), value=b"v" * (i % 300))
        for i in range(500)
    ]
    builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=5000))
    from stratalog.records.builder import rows_of_records

    builder.append(rows_of_records(records))
    region = bytes(builder.out)
    copied = read(region, rows=100)
    viewed = read(region, views=True, rows=100)
    gc.collect()
    read(region)  # memory that came back is used again; what is still held must not be
    assert copied["key"].to_pylist() == viewed["key"].to_pylist() == [r.key for r in records]
    assert copied["value"].to_pylist() == viewed["value"].to_pylist() == [r.value for r in records]


def test_views_of_an_uncompressed_log_point_into_it() -> None:
    region = build_batch([Record(value=b"v" * 100)])
    viewed = read(region, ("value",), views=True)
    buffers = viewed["value"].chunk(0).buffers()
    assert buffers[2].address == pa.py_buffer(region).address


def test_a_log_batch_larger_than_batch_rows_is_sliced() -> None:
    region = build_batch([Record(value=b"%d" % i) for i in range(1000)])
    table = read(region, rows=64)
    assert max(len(chunk) for chunk in table["value"].chunks) == 64
    assert table["value"].to_pylist() == [b"%d" % i for i in range(1000)]


def test_columns_are_written_and_read_back() -> None:
    headers = [[("a", b"1"), ("a", None)], None, []]
    data = pa.record_batch(
        {
            "offset": pa.array([3, 5, 6]),
            "timestamp": pa.array([T, T + 1, -T], pa.timestamp("ms", tz="UTC")),
            "key": pa.array([b"k", None, b""], pa.binary()),
            "value": pa.array(["text", None, ""], pa.string()),
            "headers": pa.array(
                [
                    None if row is None else [{"key": k, "value": v} for k, v in row]
                    for row in headers
                ],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "other": pa.array([1, 2, 3]),
        }
    )
    rows = read(
        write(data, keep_offsets=True), ("offset", "timestamp_ms", "key", "value", "headers")
    )
    assert rows.to_pylist() == [
        {"offset": 3, "timestamp_ms": T, "key": b"k", "value": b"text",
         "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]},
        {"offset": 5, "timestamp_ms": T + 1, "key": None, "value": None, "headers": []},
        {"offset": 6, "timestamp_ms": -T, "key": b"", "value": b"", "headers": []},
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_time_becomes_milliseconds_downwards(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = [
        1_700_000_000 * per_second + (per_second > 1),
        -3 * per_second - (per_second > 1000),
        0,
    ]
    data = pa.record_batch(
        {"value": pa.array([b"", b"", b""]), "timestamp": pa.array(times, pa.timestamp(unit))}
    )
    wanted = [time * 1000 // per_second for time in times]
    assert read(write(data), ("timestamp_ms",))["timestamp_ms"].to_pylist() == wanted


def test_seconds_beyond_milliseconds_are_refused() -> None:
    data = pa.record_batch({"value": [b""], "timestamp": pa.array([2**60], pa.timestamp("s"))})
    with pytest.raises(UsageError, match="beyond"):
        write(data)


def test_a_slice_is_written_as_the_slice_it_is() -> None:
    headers = pa.array(
        [[{"key": f"h{i}", "value": b"%d" % i}] for i in range(10)],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    data = pa.record_batch(
        {
            "key": pa.array([b"k%d" % i if i % 2 else None for i in range(10)]),
            "value": pa.array([b"v%d" % i for i in range(10)]),
            "timestamp_ms": pa.array(range(10)),
            "headers": headers,
        }
    ).slice(3, 4)
    table = read(write(data), ("timestamp_ms", "key", "value", "headers"))
    assert table["value"].to_pylist() == [b"v3", b"v4", b"v5", b"v6"]
    assert table["key"].to_pylist() == [b"k3", None, b"k5", None]
    assert table["timestamp_ms"].to_pylist() == [3, 4, 5, 6]
    assert [row[0]["key"] for row in table["headers"].to_pylist()] == ["h3", "h4", "h5", "h6"]


@pytest.mark.parametrize(
    "kind", [pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
)
def test_any_binary_or_text_type_is_taken(kind: pa.DataType) -> None:
    values = ["a", None, "a much longer value than twelve bytes"]
    array = pa.array(values).cast(kind) if kind != pa.string() else pa.array(values)
    table = read(write(pa.record_batch({"value": array})), ("value",))
    assert table["value"].to_pylist() == [None if v is None else v.encode() for v in values]


def test_dictionaries_and_maps_are_taken() -> None:
    data = pa.record_batch(
        {
            "value": pa.array(["x", "y", "x"]).dictionary_encode(),
            "headers": pa.array(
                [[("a", b"1")], None, [("b", None), ("c", b"")]], pa.map_(pa.string(), pa.binary())
            ),
        }
    )
    rows = read(write(data), ("value", "headers")).to_pylist()
    assert [row["value"] for row in rows] == [b"x", b"y", b"x"]
    assert [len(row["headers"]) for row in rows] == [1, 0, 2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"other": [1]}, "no column 'key' or 'value'"),
        ({"value": [1]}, "column 'value' is int64"),
        ({"value": [b""], "timestamp": ["now"]}, "column 'timestamp' is string"),
        ({"value": [b""], "headers": ["x"]}, "column 'headers' is string"),
    ],
)
def test_columns_that_cannot_be_written_say_why(
    columns: dict[str, list[object]], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        rows_of(pa.record_batch(columns))


def test_keeping_offsets_wants_offsets() -> None:
    with pytest.raises(UsageError, match="without nulls"):
        rows_of(
            pa.record_batch({"value": [b""], "offset": pa.array([None], pa.int64())}),
            keep_offsets=True,
        )


def test_a_null_header_key_is_refused_with_its_row() -> None:
    headers = pa.array(
        [[], [{"key": None, "value": b""}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    with pytest.raises(InvalidRecordError, match=r"row 1 .* no key"):
        write(pa.record_batch({"value": [b"", b""], "headers": headers}))


def test_no_rows_make_no_batches() -> None:
    data = pa.record_batch({"value": pa.array([], pa.binary()), "key": pa.array([], pa.binary())})
    assert write(data) == b""


def test_a_day_reads_as_the_day_it_is() -> None:
    region = build_batch([Record(value=b"", timestamp=T, headers=(RecordHeader("ü", b""),))])
    row = read(region).to_pylist()[0]
    assert row["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert row["headers"] == [{"key": "ü", "value": b""}]


def test_columns_off_their_alignment_are_written() -> None:
    def shifted(values: list[int], code: str) -> pa.Buffer:
        raw = b"\0" + struct.pack(f"={len(values)}{code}", *values)
        return pa.py_buffer(memoryview(raw)[1:])

    times = pa.Array.from_buffers(pa.int64(), 3, [None, shifted([1, 2, 3], "q")])
    values = pa.Array.from_buffers(
        pa.binary(), 3, [None, shifted([0, 1, 3, 3], "i"), pa.py_buffer(b"abc")]
    )
    rows = read(
        write(pa.record_batch({"timestamp_ms": times, "value": values})), ("timestamp_ms", "value")
    )
    assert rows.to_pydict() == {"timestamp_ms": [1, 2, 3], "value": [b"a", b"bc", b""]}
