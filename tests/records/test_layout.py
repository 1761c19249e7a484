"""layout.py and _layout.pxd hold the same numbers; both are what Kafka's struct says."""

from __future__ import annotations

import re
import struct
from enum import IntEnum, IntFlag
from pathlib import Path

from stratalog.records import layout
from stratalog.records.layout import (
    Check,
    Codec,
    Column,
    Ending,
    FilterCount,
    IndexState,
    MatchState,
    MatchStop,
    Reason,
    Row,
    TimestampType,
)

PXD = Path(layout.__file__).with_name("_layout.pxd")
ENUMS: dict[str, type[IntEnum | IntFlag]] = {
    "ENDING_": Ending,
    "REASON_": Reason,
    "CHECK_": Check,
    "WANT_": Column,
    "ROW_": Row,
    "STATE_": IndexState,
    "MATCH_": MatchState,
    "STOP_": MatchStop,
    "CODEC_": Codec,
    "FILTER_": FilterCount,
    "TYPE_": TimestampType,
}


def pxd_numbers() -> dict[str, int]:
    pairs = re.findall(r"^    ([A-Z0-9_]+) = (-?[0-9xA-Fa-f]+)$", PXD.read_text(), re.MULTILINE)
    return {name: int(value, 0) for name, value in pairs}


def python_number(name: str) -> int:
    if hasattr(layout, name):
        return int(getattr(layout, name))
    if name == "INCLUDE_CONTROL":
        return int(Check.INCLUDE_CONTROL)
    for prefix, enum in ENUMS.items():
        if name.startswith(prefix):
            return int(enum[name.removeprefix(prefix)])
    raise AssertionError(f"_layout.pxd has {name}, layout.py has not")


def test_every_number_of_the_kernel_is_that_of_layout() -> None:
    numbers = pxd_numbers()
    assert len(numbers) > 100
    assert numbers == {name: python_number(name) for name in numbers}


def test_the_kernel_knows_every_ending_reason_column_row_and_state_field() -> None:
    numbers = pxd_numbers()
    for prefix in ("ENDING_", "REASON_", "WANT_", "ROW_", "STATE_", "MATCH_", "STOP_"):
        for member in ENUMS[prefix]:
            assert numbers[f"{prefix}{member.name}"] == int(member)


def test_header_positions_follow_kafkas_struct() -> None:
    fields = [
        ("q", layout.OFFSET_AT), ("i", layout.SIZE_AT), ("i", layout.LEADER_EPOCH_AT),
        ("b", layout.MAGIC_AT), ("I", layout.CRC_AT), ("h", layout.ATTRIBUTES_AT),
        ("i", layout.LAST_OFFSET_DELTA_AT), ("q", layout.BASE_TIMESTAMP_AT),
        ("q", layout.MAX_TIMESTAMP_AT), ("q", layout.PRODUCER_ID_AT),
        ("h", layout.PRODUCER_EPOCH_AT), ("i", layout.BASE_SEQUENCE_AT),
        ("i", layout.RECORD_COUNT_AT),
    ]  # fmt: skip
    at = 0
    for code, position in fields:
        assert position == at
        at += struct.calcsize(">" + code)
    assert at == layout.BATCH_HEADER_SIZE
