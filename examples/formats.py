"""A log in every record format and codec that Kafka has had: written, read back as Arrow, and how fast.

python examples/formats.py
python examples/formats.py --records 1000000 --keep out
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import stratalog
from stratalog.inspect.file.count import count_file
from stratalog.records import kernel
from stratalog.records.arrow import rows_of
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageBuilder, MessageOptions
from stratalog.records.v07 import build_entries
from stratalog.storage.names import log_file_name

FIRST_TIMESTAMP = 1_700_000_000_000
ROWS_AT_ONCE = 16_384
MIB = 1 << 20


@dataclass(frozen=True)
class Written:
    """One segment, and what it cost to write it."""

    name: str
    codec: str
    path: Path
    records: int
    seconds: float

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=200_000, help="records in every log")
    options.add_argument("--keep", type=Path, help="write the logs here, and leave them")
    given = options.parse_args(arguments)
    print(f"Stratalog {stratalog.__version__}, kernel {kernel.NAME}, "
          f"CRC32C by {'instruction' if kernel.HARDWARE_CRC else 'table'}")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="stratalog-demo-") as scratch:
        root = given.keep or Path(scratch)
        root.mkdir(parents=True, exist_ok=True)
        events = list(make_events(given.records))
        expected = digest(events)
        print(
            f"{'format':<12}{'codec':<8}{'size':>11}{'write':>16}{'read':>16}{'count':>14}  equal"
        )
        wrong = 0
        for written in write_logs(root, events):
            wrong += not report(written, expected)
    print("\nevery record came back equal" if not wrong else f"\n{wrong} logs differ")
    return 1 if wrong else 0


def make_events(records: int) -> Iterator[pa.RecordBatch]:
    """Orders as a shop would log them: a key, some JSON, a millisecond apart."""
    cities = ["Berlin", "Paris", "Oslo", "Madrid", "Wien"]
    for first in range(0, records, ROWS_AT_ONCE):
        numbers = range(first, min(first + ROWS_AT_ONCE, records))
        yield pa.record_batch(
            {
                "timestamp_ms": pa.array([FIRST_TIMESTAMP + n for n in numbers]),
                "key": pa.array([b"customer-%05d" % (n * 7919 % 50_000) for n in numbers]),
                "value": pa.array(
                    [
                        f'{{"order": {n}, "amount": {n * 37 % 99_991 / 100}, '
                        f'"city": "{cities[n % 5]}", "status": "shipped"}}'.encode()
                        for n in numbers
                    ]
                ),
            }
        )


def write_logs(root: Path, events: list[pa.RecordBatch]) -> Iterator[Written]:
    for codec in Codec:
        yield write_batches(root, events, codec)
    for magic in (1, 0):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield write_messages(root, events, magic, codec)
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY):
        yield write_oldest(root, events, codec)


def segment(root: Path, topic: str, *, is_v07: bool = False) -> Path:
    folder = root / f"{topic}-0"
    folder.mkdir(exist_ok=True)
    return folder / log_file_name(0, is_v07=is_v07)


def write_batches(root: Path, events: list[pa.RecordBatch], codec: Codec) -> Written:
    name = codec.name.lower()
    path = segment(root, f"magic2-{name}")
    started = time.perf_counter()
    builder = BatchBuilder(BatchOptions(codec=codec))
    with path.open("wb") as file:
        for batch in events:
            rows = rows_of(batch)
            row = 0
            while row < rows.count:
                row = builder.append(rows, row=row, out_bytes_max=MIB)
                file.write(builder.out)
                builder.out.clear()
    return Written("magic 2", name, path, builder.next_offset, time.perf_counter() - started)


def write_messages(root: Path, events: list[pa.RecordBatch], magic: int, codec: Codec) -> Written:
    name = codec.name.lower()
    path = segment(root, f"magic{magic}-{name}")
    started = time.perf_counter()
    builder = MessageBuilder(MessageOptions(magic=magic, codec=codec))
    with path.open("wb") as file:
        for batch in events:
            builder.append(rows_of(batch))
            file.write(builder.out)
            builder.out.clear()
    return Written(f"magic {magic}", name, path, builder.next_offset, time.perf_counter() - started)


def write_oldest(root: Path, events: list[pa.RecordBatch], codec: Codec) -> Written:
    name = codec.name.lower()
    path = segment(root, f"v07-{name}", is_v07=True)
    records = 0
    started = time.perf_counter()
    with path.open("wb") as file:
        for batch in events:
            file.write(build_entries(batch["value"].to_pylist(), codec=codec))
            records += batch.num_rows
    return Written("0.7", name, path, records, time.perf_counter() - started)


def digest(batches: Iterable[pa.RecordBatch]) -> tuple[int, int, str]:
    """How many rows, how many bytes of values, and a hash of the values: what must come back."""
    rows = size = 0
    seen = hashlib.blake2b()
    for batch in batches:
        values = batch["value"]
        seen.update(b"".join(values.to_pylist()))
        size += pc.sum(pc.binary_length(values)).as_py() or 0
        rows += batch.num_rows
    return rows, size, seen.hexdigest()


def report(written: Written, expected: tuple[int, int, str]) -> bool:
    scan = stratalog.scan(written.path)
    started = time.perf_counter()
    read = sum(batch.num_rows for batch in scan)
    read_seconds = time.perf_counter() - started
    started = time.perf_counter()
    counted = count_file(str(written.path)).records
    count_seconds = time.perf_counter() - started
    equal = read == counted == written.records and digest(scan) == expected
    print(
        f"{written.name:<12}{written.codec:<8}{written.size / 1e6:>8.1f} MB"
        f"{written.records / written.seconds / 1e6:>10.2f} M/s  "
        f"{written.records / read_seconds / 1e6:>10.2f} M/s  "
        f"{count_seconds * 1e3:>10.2f} ms  {'yes' if equal else 'NO'}",
        flush=True,
    )
    return equal


if __name__ == "__main__":
    sys.exit(main())
