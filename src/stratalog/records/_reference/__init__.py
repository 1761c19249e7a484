"""The kernel's specification: the same functions in plain Python, as plainly as they can be said.

Read this to know what ``_kernel.pyx`` must do. A property test feeds both the same generated and
mutated bytes and wants the same answers, so where the two differ one of them has a bug. It also runs,
slowly, in the kernel's place: ``STRATALOG_KERNEL=reference``.

Reading goes through :class:`Cursor` only: it cannot go past its limit. Each module is what one or two of the
kernel's ``.pxi`` files are.
"""

from __future__ import annotations

from typing import Final

from stratalog.records._reference.check import (
    admit_plain,
    check_records,
    find_timestamp,
    place_plain,
)
from stratalog.records._reference.columns import MICROSECONDS_MAX_MS, Columns
from stratalog.records._reference.crc import crc32, crc32c
from stratalog.records._reference.cursor import Cursor
from stratalog.records._reference.digests import KeyDigests
from stratalog.records._reference.encode import (
    encode_messages,
    encode_number,
    encode_records,
    hash_keys,
    murmur2,
    restamp,
    write_batch_header,
)
from stratalog.records._reference.entries import match_entries
from stratalog.records._reference.filter import BatchFilter
from stratalog.records._reference.headers import copy, count, walk, zero_run
from stratalog.records._reference.index import note_batches, replay_rows
from stratalog.records._reference.latest import LatestKeys, siphash, sort_offsets
from stratalog.records._reference.lookup import (
    find_batch,
    find_places,
    find_time_entry,
    find_timed,
    search_entries,
)
from stratalog.records._reference.offset_map import OffsetMap
from stratalog.records._reference.rows import Rows
from stratalog.records._reference.search import find_intact, find_intact_v07
from stratalog.records._reference.v07 import walk_v07

__all__ = [
    "HARDWARE_CRC",
    "MICROSECONDS_MAX_MS",
    "NAME",
    "BatchFilter",
    "Columns",
    "Cursor",
    "KeyDigests",
    "LatestKeys",
    "OffsetMap",
    "Rows",
    "admit_plain",
    "check_records",
    "copy",
    "count",
    "crc32",
    "crc32c",
    "encode_messages",
    "encode_number",
    "encode_records",
    "find_batch",
    "find_intact",
    "find_intact_v07",
    "find_places",
    "find_time_entry",
    "find_timed",
    "find_timestamp",
    "hash_keys",
    "match_entries",
    "murmur2",
    "note_batches",
    "place_plain",
    "replay_rows",
    "restamp",
    "search_entries",
    "siphash",
    "sort_offsets",
    "walk",
    "walk_v07",
    "write_batch_header",
    "zero_run",
]

NAME: Final = "reference"
HARDWARE_CRC: Final = False
