"""The two checksums, a byte at a time."""

from __future__ import annotations

import zlib
from typing import Final

from stratalog.records._reference.cursor import Buffer


def _make_table(polynomial: int) -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C_TABLE: Final = _make_table(0x82F63B78)


def crc32c(data: Buffer, value: int = 0) -> int:
    crc = value ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = crc >> 8 ^ _CRC32C_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32(data: Buffer, value: int = 0) -> int:
    return zlib.crc32(data, value)
