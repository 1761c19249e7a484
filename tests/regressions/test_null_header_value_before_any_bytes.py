"""A null header value, seen before any header value had bytes, asked for a buffer of minus one byte."""

from __future__ import annotations

from stratalog.records.builder import build_batch
from stratalog.records.columns import decode_records
from stratalog.records.model import Record, RecordHeader


def test_null_header_value_before_any_bytes_leaves_room_for_what_follows() -> None:
    records = [
        Record(
            value=b"v", headers=(RecordHeader("null", None), RecordHeader("long", b"x" * 10_000))
        )
        for _ in range(20)
    ]
    read = list(decode_records(build_batch(records)))
    assert [record.headers for record in read] == [record.headers for record in records]
