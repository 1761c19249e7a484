"""A process that appends to a log until it is killed, and tells each record when it is acknowledged.

``python -m tests.crash.writer ROOT sync|unsynced|never SEED``: one line ``offset value`` for each
acknowledgment. ``unsynced`` flushes now and then; ``never`` does not, nor does it roll or close.
Everything is told by one call of the system, so that nothing is told that was not acknowledged.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from random import Random

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import StorageError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import Watermark
from tests.crash.keeper import Keeper

CONFIG = LogConfig.of(
    internal_segment_bytes=4000,
    segment_index_bytes=400,
    index_interval_bytes=300,
    file_delete_delay_ms=0,
)
#: The one producer; its sequence numbers are the offsets.
PRODUCER = 7


def opened(root: str, mode: str = "sync") -> Keeper:
    config = CONFIG if mode != "never" else replace(CONFIG, internal_segment_bytes=1 << 20)
    return Keeper(OsFileSystem(), SYSTEM_CLOCK, config, root=root, watermark=Watermark.SYNCED)


def batch(sequence: int, value: bytes) -> bytes:
    return build_batch(
        [Record(value, timestamp=SYSTEM_CLOCK.now_ms())],
        BatchOptions(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence),
    )


def write(root: str, mode: str, seed: str) -> None:
    random = Random(seed)
    keeper = opened(root, mode)
    while True:
        offset = keeper.log.log_end
        value = f"{seed}:{offset}:{'.' * random.randint(0, 200)}"
        keeper.log.append(batch(offset, value.encode()), sync=mode == "sync")
        os.write(1, f"{offset} {value}\n".encode())
        match -1 if mode == "never" else random.randint(0, 40):
            case 0:
                keeper.log.flush()
                keeper.checkpoint()
            case 1:
                keeper.log.roll()
            case 2:
                keeper.close()
                keeper = opened(root, mode)


if __name__ == "__main__":
    try:
        write(*sys.argv[1:4])
    except StorageError as error:
        sys.exit(f"{error}")
