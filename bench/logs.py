"""Logs to measure on: made with our own builder, the same for ours and the peer."""

from __future__ import annotations

import os
import random
from array import array
from pathlib import Path

from stratalog.records import kernel
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.layout import Codec
from stratalog.storage.files.system_calls import system_call

_ROWS = 4096
_TIMESTAMP = 1_700_000_000_000
_WORDS = [
    b"order", b"shipped", b"customer", b"amount", b"currency", b"status", b"pending", b"city",
    b"2024-05-01T12:00:00Z", b'{"id": ', b'", "', b"true", b"null", b"0.25", b"EUR", b"Berlin",
]  # fmt: skip


def make_rows(value_size: int, *, rows: int = _ROWS, text: bool = False) -> kernel.Rows:
    """Rows with 9-byte keys, a millisecond apart; values random, or text that compresses as logs do."""
    rng = random.Random(value_size)
    value_ends = array("i", range(0, (rows + 1) * value_size, value_size))
    key_ends = array("i", range(0, (rows + 1) * 9, 9))
    if text:
        words = b" ".join(rng.choice(_WORDS) for _ in range(rows * value_size // 4))
        values = words[: rows * value_size]
    else:
        values = rng.randbytes(rows * value_size)
    keys = b"".join(b"key-%05d" % (i % 100_000) for i in range(rows))
    return kernel.Rows(
        rows,
        timestamps=(None, array("q", range(_TIMESTAMP, _TIMESTAMP + rows)), 0),
        key=(None, key_ends, keys, 0),
        value=(None, value_ends, values, 0),
    )


def make_log(
    size: int,
    *,
    value_size: int,
    records_per_batch: int,
    codec: Codec = Codec.NONE,
    text: bool = False,
) -> tuple[bytes, int]:
    """A log of about ``size`` bytes, and how many records it holds."""
    # A record here has 9 + 100 bytes of key and value, and up to 10 of lengths and deltas.
    batch_bytes = records_per_batch * (value_size + 9 + (9 if value_size < 64 else 10))
    builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=batch_bytes))
    rows = make_rows(value_size, rows=_ROWS - _ROWS % records_per_batch, text=text)
    while len(builder.out) < size:
        builder.append(rows)
    return bytes(builder.out), builder.next_offset


def write_log(
    folder: Path, size: int, *, value_size: int, records_per_batch: int
) -> tuple[Path, int]:
    """A segment file of about ``size`` bytes, and how many records it holds."""
    partition = folder / "bench-0"
    partition.mkdir(parents=True, exist_ok=True)
    path = partition / "00000000000000000000.log"
    batch_bytes = records_per_batch * (value_size + 19)
    builder = BatchBuilder(BatchOptions(batch_bytes=batch_bytes))
    rows = make_rows(value_size, rows=_ROWS - _ROWS % records_per_batch)
    with path.open("wb") as file:
        while file.tell() < size:
            builder.append(rows)
            file.write(builder.out)
            builder.out.clear()
    return path, builder.next_offset


def write_keyed_log(
    folder: Path, records: int, *, keys: int, value_size: int, codec: Codec = Codec.NONE
) -> Path:
    """A segment file with so many records, each of a 12-byte key that is drawn at random, in batches of
    about 150."""
    partition = folder / "keyed-0"
    partition.mkdir(parents=True, exist_ok=True)
    path = partition / "00000000000000000000.log"
    rng = random.Random(keys)
    values = rng.randbytes(_ROWS * value_size)
    value_ends = array("i", range(0, (_ROWS + 1) * value_size, value_size))
    key_ends = array("i", range(0, (_ROWS + 1) * 12, 12))
    builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=150 * (value_size + 22)))
    with path.open("wb") as file:
        for first in range(0, records, _ROWS):
            drawn = (b"%012d" % int(rng.random() * keys) for _ in range(_ROWS))
            rows = kernel.Rows(
                min(_ROWS, records - first),
                timestamps=(None, array("q", range(first, first + _ROWS)), 0),
                key=(None, key_ends, b"".join(drawn), 0),
                value=(None, value_ends, values, 0),
            )
            builder.append(rows)
            file.write(builder.out)
            builder.out.clear()
    return path


def calm(folder: Path, size: int) -> None:
    """The disk has nothing left to do of what the other side has written, and ``size`` bytes of free memory
    are really there: a virtual machine that gives free memory back to its host waits for every page of it,
    longer than a write takes."""
    # Of this file system only: others may be in the middle of something that is to be lost.
    sync_all = system_call("syncfs", "i")
    if sync_all is None:
        os.sync()
    else:
        opened = os.open(folder, os.O_RDONLY)
        sync_all(opened)
        os.close(opened)
    path = folder / "calm"
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    path.unlink()
