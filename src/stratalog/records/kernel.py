"""Which kernel runs. The only place that knows there are two.

The compiled kernel is required: an installation without it is broken and says so. The reference, which
is the specification in plain Python, runs when ``STRATALOG_KERNEL=reference`` asks for it, and only then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("STRATALOG_KERNEL", "compiled") == "compiled":
    try:
        from stratalog.records._kernel import (
            HARDWARE_CRC,
            NAME,
            Columns,
            Rows,
            copy,
            count,
            crc32,
            crc32c,
            encode_messages,
            encode_records,
            restamp,
            walk,
            walk_v07,
            write_batch_header,
        )
    except ImportError as error:  # pragma: no cover - a broken installation
        raise ImportError(
            f"Stratalog's compiled kernel cannot be loaded ({error}); build it with 'make setup', "
            "or set STRATALOG_KERNEL=reference to run on plain Python, a hundred times slower"
        ) from error
elif os.environ["STRATALOG_KERNEL"] == "reference":
    from stratalog.records._reference import (
        HARDWARE_CRC,
        NAME,
        Columns,
        Rows,
        copy,
        count,
        crc32,
        crc32c,
        encode_messages,
        encode_records,
        restamp,
        walk,
        walk_v07,
        write_batch_header,
    )
else:
    raise ImportError("STRATALOG_KERNEL is 'compiled' or 'reference'")

__all__ = [
    "HARDWARE_CRC",
    "NAME",
    "Columns",
    "Rows",
    "copy",
    "count",
    "crc32",
    "crc32c",
    "encode_messages",
    "encode_records",
    "restamp",
    "walk",
    "walk_v07",
    "write_batch_header",
]
