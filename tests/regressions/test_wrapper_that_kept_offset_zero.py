"""A magic 1 wrapper whose producer left its offset 0 holds records above 0: bounds and the order of what
follows must go by its contents, not by its header."""

from __future__ import annotations

import pytest

from stratalog.errors import CorruptionError
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import Codec, Column
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.restamp import assign_message_offset

COLUMNS = (
    Column.OFFSET | Column.TIMESTAMP_MS | Column.TIMESTAMP_TYPE | Column.KEY | Column.VALUE
    | Column.HEADERS
)  # fmt: skip


def wrapper() -> bytes:
    records = [Record(value=b"%d" % i, timestamp=5) for i in range(3)]
    data = bytearray(build_messages(records, MessageOptions(magic=1, codec=Codec.GZIP)))
    assign_message_offset(data, 0, 0)
    return bytes(data)


def test_start_inside_the_wrapper_finds_its_records() -> None:
    read = decode_records(wrapper(), Selection(columns=COLUMNS, start=1))
    assert [record.offset for record in read] == [1, 2]


def test_a_message_within_the_wrappers_offsets_is_out_of_order() -> None:
    following = build_messages([Record(value=b"x", timestamp=5, offset=1)])
    with pytest.raises(CorruptionError) as raised:
        list(decode_records(wrapper() + following))
    assert raised.value.reason == "offset_order"
