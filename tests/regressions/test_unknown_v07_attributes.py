"""Attributes of a 0.7 entry beyond its two codec bits say nothing, and stop nobody from reading it."""

from __future__ import annotations

from stratalog.records.columns import decode_records
from stratalog.records.layout import V07_ATTRIBUTES_AT, Check, Codec
from stratalog.records.scan import scan_v07
from stratalog.records.v07 import build_entries


def test_unknown_v07_attribute_bits_are_ignored() -> None:
    for codec, high_bits in ((Codec.NONE, 4), (Codec.GZIP, 0xFC)):
        data = bytearray(build_entries([b"a", b"b"], codec=codec))
        data[V07_ATTRIBUTES_AT] |= high_bits
        assert next(scan_v07(data, check=Check.CRC)).codec == codec
        assert [r.value for r in decode_records(data, v07_base_offset=0)] == [b"a", b"b"]
