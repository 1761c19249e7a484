"""Which kernel runs. The only place that knows there are two.

The compiled kernel is required: an installation without it is broken and says so. The reference, which
is the specification in plain Python, runs when ``STRATALOG_KERNEL=reference`` asks for it, and only then.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stratalog.records._kernel import (
        HARDWARE_CRC,
        NAME,
        BatchFilter,
        Columns,
        KeyDigests,
        LatestKeys,
        OffsetMap,
        Rows,
        admit_plain,
        check_records,
        copy,
        count,
        crc32,
        crc32c,
        encode_messages,
        encode_records,
        find_batch,
        find_intact,
        find_intact_v07,
        find_places,
        find_time_entry,
        find_timed,
        find_timestamp,
        hash_keys,
        match_entries,
        murmur2,
        note_batches,
        place_plain,
        replay_rows,
        restamp,
        search_entries,
        siphash,
        sort_offsets,
        walk,
        walk_v07,
        write_batch_header,
        zero_run,
    )

__all__ = [
    "HARDWARE_CRC",
    "NAME",
    "BatchFilter",
    "Columns",
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


def _chosen() -> Any:
    match os.environ.get("STRATALOG_KERNEL", "compiled"):
        case "reference":
            return import_module("stratalog.records._reference")
        case "compiled":
            try:
                return import_module("stratalog.records._kernel")
            except ImportError as error:
                raise ImportError(
                    f"Stratalog's compiled kernel cannot be loaded ({error}); build it with 'make setup', or "
                    "set STRATALOG_KERNEL=reference to run on plain Python, a hundred times slower"
                ) from error
        case other:
            raise ImportError(f"STRATALOG_KERNEL is 'compiled' or 'reference', not {other!r}")


_kernel = _chosen()
globals().update({name: getattr(_kernel, name) for name in __all__})
