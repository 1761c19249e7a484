"""The pages of docs/formats: their examples decode to what stands beside them, under both kernels, and
their tables say what the code says. The codecs page is checked by test_compression.py."""

from __future__ import annotations

import importlib
import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from stratalog.errors import CorruptionError
from stratalog.records import kernel, layout, v07
from stratalog.records._reference import Cursor, encode_number
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.columns import RegionDecoder, Selection, decode_records
from stratalog.records.compression import Decompressor, compress
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Check, Codec, Column, Ending, Reason
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import BatchHeader, Record, RecordHeader
from stratalog.records.restamp import assign_offsets, set_append_time
from stratalog.records.scan import STRICT, BatchScan, scan_batches, scan_v07

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs" / "formats"
GOLDEN: Final = ROOT / "tests" / "golden"
PAGES: Final = {
    name: (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("README", "record-batch", "message-set", "v07")
}
T: Final = 1_700_000_000_000

# ---------------------------------------------------------------------------------------------
# Reading the pages


@dataclass(frozen=True)
class Example:
    page: str
    name: str
    data: bytes
    expect: dict[str, Any]
    payload: bytes | None  # what its compressed part decompresses to

    def __str__(self) -> str:
        return f"{self.page}:{self.name}"


def hex_column(text: str) -> bytes:
    lines = []
    for line in text.splitlines():
        match = re.fullmatch(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: {2,}\S.*)?", line)
        assert match, f"not bytes and a comment: {line!r}"
        lines.append(bytes.fromhex(match[1]))
    return b"".join(lines)


def examples_of(page: str) -> Iterator[Example]:
    blocks = re.findall(
        r"^```(\w+) (\w+)=([\w-]+)\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL
    )
    found = {(kind, what, name): body for kind, what, name, body in blocks}
    assert len(found) == len(blocks), f"{page}: a name is used twice"
    names = [name for kind, what, name, _ in blocks if (kind, what) == ("hex", "example")]
    payloads = {name for kind, what, name in found if (kind, what) == ("hex", "payload")}
    assert payloads <= set(names)
    assert len(found) == 2 * len(names) + len(payloads), f"{page}: a block of an unknown kind"
    for at, (kind, what, name, _) in enumerate(blocks):
        if what == "example":
            assert blocks[at + 1][:3] == ("json", "expect", name), f"{page}: {name} expects nothing"
            payload = found.get(("hex", "payload", name))
            yield Example(
                page,
                name,
                hex_column(found[kind, what, name]),
                json.loads(found["json", "expect", name]),
                None if payload is None else hex_column(payload),
            )


EXAMPLES: Final = [example for page in PAGES for example in examples_of(page)]
ENTRIES: Final = [example for example in EXAMPLES if example.expect["format"] in ("log", "v07")]


def example(name: str) -> Example:
    (found,) = [example for example in EXAMPLES if example.name == name]
    return found


Table = tuple[str, list[str], list[list[str]]]  # the heading it stands under, its head, its rows


def tables_of(page: str) -> Iterator[Table]:
    heading = ""
    lines: list[list[str]] = []
    for line in [*PAGES[page].splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
            continue
        if lines:
            assert {len(row) for row in lines} == {len(lines[0])}, f"{page}: a ragged table"
            yield heading, lines[0], lines[2:]
            lines = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def table(page: str, heading: str, first: str) -> list[list[str]]:
    (rows,) = [t[2] for t in tables_of(page) if t[0] == heading and t[1][0] == first]
    return rows


# ---------------------------------------------------------------------------------------------
# Reading the examples


@pytest.fixture(params=["_kernel", "_reference"])
def either_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with the compiled kernel, and again with its specification."""
    module = importlib.import_module(f"stratalog.records.{request.param}")
    for name in kernel.__all__:
        monkeypatch.setattr(kernel, name, getattr(module, name))


with_both_kernels = pytest.mark.usefixtures("either_kernel")

SELECTION: Final = Selection(
    check=STRICT | Check.INCLUDE_CONTROL,
    columns=Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS,
)


def scan(data: bytes, base_offset: int | None) -> BatchScan:
    if base_offset is None:
        return scan_batches(data, check=STRICT)
    return scan_v07(data, check=STRICT, base_offset=base_offset)


def header_value(header: BatchHeader, name: str) -> Any:
    value = getattr(header, name)
    if name == "crc":
        return f"{value:08x}"
    return value.name.lower() if isinstance(value, Enum) else value


def hex_or_none(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def as_json(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type.name.lower(),
        "key_hex": hex_or_none(record.key),
        "value_hex": hex_or_none(record.value),
        "headers": [[header.key, hex_or_none(header.value)] for header in record.headers],
    }


def joined(record: dict[str, Any]) -> dict[str, Any]:
    """Long byte strings stand in the pages as lists of pieces."""
    return {
        name: "".join(value) if name.endswith("_hex") and isinstance(value, list) else value
        for name, value in record.items()
    }


def check_entries(data: bytes, expect: dict[str, Any], base_offset: int | None) -> None:
    walk = scan(data, base_offset)
    headers = list(walk)
    assert (walk.end.ending, walk.end.position) == (Ending.END, len(data))
    assert len(headers) == len(expect["batches"])
    for header, wanted in zip(headers, expect["batches"], strict=True):
        assert {name: header_value(header, name) for name in wanted} == wanted
    records = list(decode_records(data, SELECTION, v07_base_offset=base_offset))
    assert [as_json(record) for record in records] == [joined(r) for r in expect["records"]]


each_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)
each_entry = pytest.mark.parametrize("example", ENTRIES, ids=str)


@with_both_kernels
@each_example
def test_example_decodes_to_what_stands_beside_it(example: Example) -> None:
    expect = example.expect
    match expect["format"]:
        case "log":
            check_entries(example.data, expect, None)
        case "v07":
            check_entries(example.data, expect, expect["base_offset"])
        case "message-set-send":
            send = v07.decode_message_set_send(example.data)
            assert send.error_code == expect["error_code"]
            check_entries(send.content, expect, expect["base_offset"])
            assert v07.encode_message_set_send(send.content, send.error_code) == example.data
        case "multi-message-set-send":
            multi = v07.decode_multi_message_set_send(example.data)
            assert multi.error_code == expect["error_code"]
            assert len(multi.sends) == len(expect["sends"])
            for send, wanted in zip(multi.sends, expect["sends"], strict=True):
                assert send.error_code == wanted["error_code"]
                check_entries(send.content, wanted, wanted["base_offset"])
            assert v07.encode_multi_message_set_send(multi.sends) == example.data
        case unknown:
            pytest.fail(f"no such format: {unknown}")


@each_example
def test_example_with_a_source_stands_there(example: Example) -> None:
    source = example.expect.get("source")
    if source is None:
        return
    with (GOLDEN / source["file"]).open("rb") as file:
        file.seek(source["position"])
        assert file.read(len(example.data)) == example.data


@with_both_kernels
@each_entry
def test_compressed_part_decompresses_to_the_payload_block(example: Example) -> None:
    if example.payload is None:
        return
    (header,) = scan(example.data, example.expect.get("base_offset"))
    start = header.payload_position
    compressed = example.data[start : start + header.payload_size_bytes]
    inside = Decompressor().decompress(header.codec, compressed, magic=header.magic)
    assert bytes(inside) == example.payload


@with_both_kernels
@each_entry
def test_example_that_is_cut_off_is_incomplete(example: Example) -> None:
    base_offset = example.expect.get("base_offset")
    ends = {0} | {header.end_position for header in scan(example.data, base_offset)}
    for size in range(len(example.data)):
        data = example.data[:size]
        ending = Ending.END if size in ends else Ending.INCOMPLETE
        assert scan(data, base_offset).end.ending == ending, size
    with pytest.raises(CorruptionError, match="short_tail"):
        list(decode_records(example.data[:-1], SELECTION, v07_base_offset=base_offset))


@pytest.mark.parametrize("name", ["message-set-send", "multi-message-set-send"])
def test_framing_that_does_not_fit_is_refused(name: str) -> None:
    data = example(name).data
    decode = getattr(v07, "decode_" + name.replace("-", "_"))
    for wrong in [data[:size] for size in range(len(data))] + [data + b"\0"]:
        with pytest.raises(CorruptionError, match="wrong_frame"):
            decode(wrong)


# ---------------------------------------------------------------------------------------------
# Writing the examples


KV: Final = Record(key=b"k", value=b"v", timestamp=T)


def wrapped(name: str, payload: bytes, offset: int) -> bytes:
    """The wrapper of that example with other messages inside and another offset."""
    (header,) = scan_batches(example(name).data)
    value = bytes(compress(header.codec, payload, magic=header.magic))
    head = example(name).data[layout.MAGIC_AT : header.payload_position - 4]
    body = head + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def built() -> dict[str, bytes]:
    """What our writers make of the same records."""
    nothing = Record(None, timestamp=T + 5)
    header_x = (RecordHeader("h", b"x"),)
    transaction = BatchOptions(
        is_transactional=True, producer_id=7, producer_epoch=3, base_sequence=20, leader_epoch=4
    )
    full = BatchOptions(producer_id=7, producer_epoch=3, base_sequence=20, leader_epoch=4)
    (five,) = scan_batches(build_batch([KV] * 5, full, base_offset=100))
    return {
        "two-records": build_batch([Record(b"v1", b"k1", T, header_x), nothing]),
        "transactional": build_batch([KV], transaction, base_offset=100),
        "as-produced": build_batch([KV]),
        "commit": build_marker(
            ControlType.COMMIT, offset=42, timestamp=T, producer_id=7, producer_epoch=3,
            coordinator_epoch=5, leader_epoch=1,
        ),
        "empty": empty_batch(replace(five, crc=0)),
        "lz4": build_batch([KV], BatchOptions(codec=Codec.LZ4), base_offset=200),
        "v0": build_messages([KV], MessageOptions(magic=0)),
        "v0-nulls": build_messages([Record(None)], MessageOptions(magic=0), base_offset=9),
        "v1": build_messages([Record(b"v", timestamp=T)]),
        "plain": v07.build_entry(example("plain").data[9:55], magic=0)
        + v07.build_entry(example("plain").data[65:]),
    }  # fmt: skip


@with_both_kernels
def test_writers_make_the_same_bytes() -> None:
    assert built() == {name: example(name).data for name in built()}


@with_both_kernels
def test_leader_changes_these_bytes_and_no_other() -> None:
    batch = bytearray(example("as-produced").data)
    assert assign_offsets(batch, next_offset=1234, leader_epoch=9) == 1235
    set_append_time(batch, 0, T + 777)
    assert bytes(batch) == example("append-time").data
    message = bytearray(example("v1-gzip-wrapper").data)
    set_append_time(message, 0, T + 777)
    assert bytes(message) == example("v1-append-time-wrapper").data


# ---------------------------------------------------------------------------------------------
# Damage, as the pages' tables tell it


def edited(data: bytes, edits: dict[int, str], *, seal: bool = True) -> bytes:
    """Some bytes replaced and, unless it is the CRC that shall tell, the CRC made right again."""
    out = bytearray(data)
    for at, text in edits.items():
        new = bytes.fromhex(text)
        out[at : at + len(new)] = new
    if seal and out[layout.MAGIC_AT] == 2:
        struct.pack_into(">I", out, layout.CRC_AT, kernel.crc32c(out[layout.CRC_FROM :]))
    elif seal:
        crc = zlib.crc32(out[layout.MESSAGE_CRC_FROM :])
        struct.pack_into(">I", out, layout.MESSAGE_CRC_AT, crc)
    return bytes(out)


def verdict(data: bytes, base_offset: int | None = None, **selection: Any) -> str:
    """How a walk ends, or where that is a clean end, how decoding does."""
    end = scan(data, base_offset).end
    if end.ending != Ending.END:
        return f"{end.ending.name} {end.reason.name.lower()}"
    decoder = RegionDecoder(replace(SELECTION, **selection))
    if base_offset is None:
        pause = decoder.decode(data, 0, len(data))
    else:
        pause = decoder.decode_v07(data, 0, len(data), base_offset=base_offset)
    return f"{pause.ending.name} {pause.reason.name.lower()}"


@with_both_kernels
@pytest.mark.parametrize(
    ("name", "edits", "reason"),
    [
        ("two-records", {8: "00000000"}, "size_too_small"),
        ("two-records", {8: "00000030"}, "size_too_small"),
        ("two-records", {16: "03"}, "unknown_magic"),
        ("two-records", {0: "80"}, "offset_range"),
        ("two-records", {0: "7fffffffffffffff"}, "offset_range"),
        ("two-records", {12: "fffffffe"}, "leader_epoch_range"),
        ("two-records", {23: "ffffffff"}, "last_offset_delta_range"),
        ("two-records", {22: "05"}, "unknown_codec"),
        ("two-records", {57: "00000003"}, "record_count_range"),
        ("two-records", {57: "ffffffff"}, "record_count_range"),
        ("two-records", {23: "00000009", 57: "00000004"}, "record_count_range"),
        ("two-records", {61: "ffffffffff"}, "varint"),
        ("two-records", {61: "7e"}, "record_length"),
        ("two-records", {57: "00000001"}, "batch_trailing_bytes"),
        ("two-records", {65: "7e"}, "field_length"),
        ("two-records", {65: "03"}, "field_length"),
        ("two-records", {63: "8080808080808080808080"}, "varint"),
        ("two-records", {64: "04"}, "offset_delta_range"),
        ("two-records", {64: "01"}, "offset_delta_range"),
        ("two-records", {71: "08"}, "header_count"),
        ("two-records", {72: "01"}, "header_key_null"),
        ("two-records", {71: "00"}, "record_trailing_bytes"),
        ("lz4", {61: "00"}, "compressed_data"),
        ("lz4", {23: "00000009", 57: "00000002"}, "record_count_range"),
        ("v0", {8: "0000000d"}, "size_too_small"),
        ("v1", {8: "00000015"}, "size_too_small"),
        ("v1", {16: "04"}, "unknown_magic"),
        ("v1", {0: "80"}, "offset_range"),
        ("v1", {17: "04"}, "unknown_codec"),
        ("v1-gzip-wrapper", {30: "00000039"}, "field_length"),
        ("v1-gzip-wrapper", {34: "00"}, "compressed_data"),
        ("v0-nulls", {17: "01"}, "empty_wrapper"),
        ("v0", {18: "00000010"}, "field_length"),
        ("v0", {18: "fffffffe"}, "field_length"),
        ("v1", {30: "00000000"}, "record_trailing_bytes"),
    ],
)  # fmt: skip
def test_damage_has_the_reason_that_the_page_says(
    name: str, edits: dict[int, str], reason: str
) -> None:
    assert verdict(edited(example(name).data, edits)) == f"CORRUPT {reason}"


@with_both_kernels
@pytest.mark.parametrize("name", ["two-records", "lz4", "v0", "v1", "v1-gzip-wrapper"])
def test_every_byte_under_the_crc_is_protected(name: str) -> None:
    data = example(name).data
    first = layout.CRC_FROM if data[layout.MAGIC_AT] == 2 else layout.MESSAGE_CRC_FROM
    for at in range(first, len(data)):
        flipped = edited(data, {at: f"{data[at] ^ 1:02x}"}, seal=False)
        assert verdict(flipped).startswith("CORRUPT"), at


WRAPPER: Final = example("v1-gzip-wrapper").payload or b""
SHORT_V1: Final = bytes(8) + bytes.fromhex("0000000e 00000000 01 00") + bytes(8)


@with_both_kernels
@pytest.mark.parametrize(
    ("payload", "offset", "reason"),
    [
        (WRAPPER, 11, "none"),
        (WRAPPER, 0, "none"),  # not assigned: the offsets inside stand
        (edited(WRAPPER, {8: "00000040"}, seal=False), 11, "record_length"),
        (edited(WRAPPER, {8: "0000000d"}, seal=False), 11, "record_length"),
        (WRAPPER + bytes(5), 11, "batch_trailing_bytes"),
        (edited(WRAPPER, {16: "02"}, seal=False), 11, "unknown_magic"),
        (SHORT_V1, 11, "size_too_small"),
        (edited(WRAPPER, {17: "01"}, seal=False), 11, "nested_compression"),
        (edited(WRAPPER, {34: "63"}, seal=False), 11, "crc_mismatch"),
        (edited(WRAPPER, {7: "05"}, seal=False), 11, "offset_range"),
        (edited(WRAPPER, {42: "0c"}, seal=False), 11, "wrapper_offset"),
    ],
)
def test_damage_inside_a_wrapper(payload: bytes, offset: int, reason: str) -> None:
    data = wrapped("v1-gzip-wrapper", payload, offset)
    assert verdict(data) == ("END none" if reason == "none" else f"CORRUPT {reason}")


@with_both_kernels
def test_wrapper_offsets() -> None:
    absolute = example("v0-snappy-wrapper").payload or b""
    for offset, reason in ((630, "END none"), (0, "END none"), (629, "CORRUPT wrapper_offset")):
        assert verdict(wrapped("v0-snappy-wrapper", absolute, offset)) == reason
    unassigned = wrapped("v1-gzip-wrapper", WRAPPER, 0)
    assert [record.offset for record in decode_records(unassigned)] == [0, 1]


@with_both_kernels
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("00000004 00 00000000", "size_too_small"),
        ("00000005 01 00 000000", "size_too_small"),
        ("00000006 02 00 00000000", "unknown_magic"),
        ("00000006 01 03 00000000", "unknown_codec"),
        ("00000006 01 01 00000000", "empty_wrapper"),
        ("00000006 01 00 00000001", "crc_mismatch"),
        ("00000007 01 01 d202ef8d 00", "compressed_data"),
    ],
)
def test_damage_of_a_v07_entry(data: str, reason: str) -> None:
    assert verdict(bytes.fromhex(data), 0) == f"CORRUPT {reason}"


@with_both_kernels
@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("00000006 01 00 00000000", "none"),
        ("00000006 01 00 000000", "batch_trailing_bytes"),
        ("00000006 01 00 00000000 0000000000", "batch_trailing_bytes"),
        ("00000004 00 00000000", "size_too_small"),
        ("00000006 02 00 00000000", "unknown_magic"),
        ("00000006 01 03 00000000", "unknown_codec"),
        ("00000007 01 01 d202ef8d 00", "nested_compression"),
        ("00000006 01 01 00000000", "empty_wrapper"),
        ("00000006 01 00 00000001", "crc_mismatch"),
    ],
)
def test_damage_inside_a_v07_wrapper(inside: str, reason: str) -> None:
    compressed = bytes(compress(Codec.GZIP, bytes.fromhex(inside)))
    data = v07.build_entry(compressed, codec=Codec.GZIP)
    assert verdict(data, 0) == ("END none" if reason == "none" else f"CORRUPT {reason}")


@with_both_kernels
def test_endings_and_limits() -> None:
    two, lz4 = example("two-records").data, example("lz4").data
    assert verdict(two + bytes(7)) == verdict(two + bytes(100)) == "INCOMPLETE zero_tail"
    assert verdict(two + b"\0\1") == verdict(two + two[:50]) == "INCOMPLETE short_tail"
    assert verdict(two + two) == "CORRUPT offset_order"
    assert verdict(two + lz4) == "END none"
    assert scan_batches(two + lz4, check=Check.CONTIGUOUS).end.reason == Reason.OFFSET_GAP
    assert scan_batches(two, size_max=82).end.reason == Reason.SIZE_TOO_LARGE
    assert verdict(lz4, max_decompressed_bytes=8) == "CORRUPT decompressed_too_large"
    assert verdict(example("plain").data + bytes(3), 2691) == "INCOMPLETE zero_tail"


# ---------------------------------------------------------------------------------------------
# Tables


POSITIONS: Final[dict[tuple[str, str], dict[str, int]]] = {
    ("record-batch", "The batch"): {
        "base offset": layout.OFFSET_AT,
        "length": layout.SIZE_AT,
        "leader epoch": layout.LEADER_EPOCH_AT,
        "magic": layout.MAGIC_AT,
        "crc": layout.CRC_AT,
        "attributes": layout.ATTRIBUTES_AT,
        "last offset delta": layout.LAST_OFFSET_DELTA_AT,
        "base timestamp": layout.BASE_TIMESTAMP_AT,
        "max timestamp": layout.MAX_TIMESTAMP_AT,
        "producer id": layout.PRODUCER_ID_AT,
        "producer epoch": layout.PRODUCER_EPOCH_AT,
        "base sequence": layout.BASE_SEQUENCE_AT,
        "record count": layout.RECORD_COUNT_AT,
        "records": layout.BATCH_HEADER_SIZE,
    },
    ("message-set", "Magic 0"): {
        "offset": layout.OFFSET_AT,
        "size": layout.SIZE_AT,
        "crc": layout.MESSAGE_CRC_AT,
        "magic": layout.MAGIC_AT,
        "attributes": layout.MESSAGE_ATTRIBUTES_AT,
        "key size": layout.MESSAGE_KEY_AT_V0,
        "key": layout.MESSAGE_KEY_AT_V0 + 4,
    },
    ("message-set", "Magic 1"): {
        "offset": layout.OFFSET_AT,
        "size": layout.SIZE_AT,
        "crc": layout.MESSAGE_CRC_AT,
        "magic": layout.MAGIC_AT,
        "attributes": layout.MESSAGE_ATTRIBUTES_AT,
        "timestamp": layout.MESSAGE_TIMESTAMP_AT,
        "key size": layout.MESSAGE_KEY_AT_V1,
        "key": layout.MESSAGE_KEY_AT_V1 + 4,
    },
    ("v07", "Magic 0"): {
        "length": 0,
        "magic": layout.V07_MAGIC_AT,
        "crc": layout.V07_CRC_AT_V0,
        "payload": layout.V07_LENGTH_SIZE + layout.V07_LENGTH_MIN_V0,
    },
    ("v07", "Magic 1"): {
        "length": 0,
        "magic": layout.V07_MAGIC_AT,
        "attributes": layout.V07_ATTRIBUTES_AT,
        "crc": layout.V07_CRC_AT_V1,
        "payload": layout.V07_LENGTH_SIZE + layout.V07_LENGTH_MIN_V1,
    },
    ("v07", "MessageSetSend"): {
        "length": 0,
        "error code": 4,
        "content": len(v07.encode_message_set_send(b"")),
    },
}
CRC_FROM: Final = {
    ("record-batch", "The batch"): layout.CRC_FROM,
    ("message-set", "Magic 0"): layout.MESSAGE_CRC_FROM,
    ("message-set", "Magic 1"): layout.MESSAGE_CRC_FROM,
    ("v07", "Magic 0"): layout.V07_CRC_AT_V0 + 4,
    ("v07", "Magic 1"): layout.V07_CRC_AT_V1 + 4,
}
SIZE_MIN: Final = {
    ("record-batch", "The batch"): layout.BATCH_LENGTH_MIN,
    ("message-set", "Magic 0"): layout.MESSAGE_SIZE_MIN_V0,
    ("message-set", "Magic 1"): layout.MESSAGE_SIZE_MIN_V1,
    ("v07", "Magic 0"): layout.V07_LENGTH_MIN_V0,
    ("v07", "Magic 1"): layout.V07_LENGTH_MIN_V1,
}


def test_every_table_of_positions_is_known() -> None:
    found = {(page, t[0]) for page in PAGES for t in tables_of(page) if t[1][0] == "position"}
    assert found == set(POSITIONS)


@pytest.mark.parametrize("place", POSITIONS, ids=" ".join)
def test_positions_are_those_of_the_layout(place: tuple[str, str]) -> None:
    rows = table(*place, "position")
    fixed = [row for row in rows if row[0].isdigit()]
    assert {row[2]: int(row[0]) for row in fixed} == POSITIONS[place]
    for row, following in pairwise(fixed):
        assert int(row[0]) + int(row[1]) == int(following[0])
    if place in CRC_FROM:
        covered = {row[2]: row[3] == "yes" for row in fixed}
        assert covered == {row[2]: int(row[0]) >= CRC_FROM[place] for row in fixed}
        (least,) = re.findall(r"at least (\d+)", " ".join(row[4] for row in rows))
        assert int(least) == SIZE_MIN[place]


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("record-batch", "The batch",
         ["CODEC", "APPEND_TIME", "TRANSACTIONAL", "CONTROL", "DELETE_HORIZON"]),
        ("message-set", "Magic 1", ["CODEC", "APPEND_TIME"]),
    ],
)  # fmt: skip
def test_attribute_masks(page: str, heading: str, names: list[str]) -> None:
    rows = table(page, heading, "bits")
    assert [row[2].upper().replace(" ", "_") for row in rows] == names
    for (bits, mask, _, meaning), name in zip(rows, names, strict=True):
        first, last = int(bits[0]), int(bits[-1])
        value = int(mask.strip("`"), 16)
        assert value == getattr(layout, f"{name}_MASK")
        assert value == sum(1 << bit for bit in range(first, last + 1))
        if name == "CODEC":
            codecs = {int(number): codec for number, codec in re.findall(r"(\d) (\w+)", meaning)}
            assert codecs == {
                codec.value: codec.name.lower() for codec in list(Codec)[: len(codecs)]
            }


def test_varints() -> None:
    for number, text in table("record-batch", "The record", "number"):
        encoded = bytes.fromhex(text.strip("`"))
        assert encode_number(int(number)) == encoded
        assert Cursor(memoryview(encoded), 0, len(encoded)).varint() == int(number)


def test_control_types() -> None:
    rows = table("record-batch", "Control records", "type")
    assert {int(row[0]): row[1] for row in rows} == {kind.value: kind.name for kind in ControlType}


def test_endings_and_checks_are_all_there() -> None:
    endings = [row[0] for row in table("README", "How a walk ends", "ending")]
    assert endings == [ending.name for ending in list(Ending)[:3]]
    checks = {row[0] for row in table("README", "How a walk ends", "check")}
    assert checks == {str(check.name) for check in Check} - {"INCLUDE_CONTROL"}


def test_every_reason_is_told_and_no_other() -> None:
    names = {reason.name.lower() for reason in Reason}
    told = {
        name
        for page in PAGES
        for _, head, rows in tables_of(page)
        if head[-1] in ("reason", "reasons")
        for row in rows
        for name in re.findall(r"`(\w+)`", row[-1])
    }
    assert told == names


# ---------------------------------------------------------------------------------------------
# The pages as text


@pytest.mark.parametrize("page", PAGES)
def test_page_is_plain_markdown(page: str) -> None:
    text = PAGES[page]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^# .+$", prose, re.MULTILINE) == [text.splitlines()[0]]
    assert max(map(len, text.splitlines())) <= 120
    assert not re.search(r"[ \t]$", text, re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", prose):
        linked = (DOCS / target).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
        }
        assert not anchor or anchor in anchors, f"{target}#{anchor}"


def test_index_names_every_page() -> None:
    listed = set(re.findall(r"\(([\w-]+\.md)\)", PAGES["README"]))
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
