"""Small logs for the tests of this folder: written, then damaged where a test wants it."""

from __future__ import annotations

from pathlib import Path

from stratalog.errors import StorageError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem, OsReadableFile, ReadableFile


def batch(base_offset: int, count: int = 3, *, size: int = 20, **options) -> bytes:
    records = [Record(value=b"v" * size, key=b"k%d" % i, timestamp=1000 + i) for i in range(count)]
    return build_batch(records, BatchOptions(**options), base_offset=base_offset)


def segment(folder: Path, base_offset: int, data: bytes, *, partition: str = "orders-0") -> str:
    path = folder / partition / f"{base_offset:020d}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return str(path)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def sealed(data: bytes) -> bytes:
    """A batch whose CRC is made right again after something in it was changed."""
    from stratalog.records import kernel
    from stratalog.records.layout import CRC_AT, CRC_FROM

    crc = kernel.crc32c(data[CRC_FROM:])
    return data[:CRC_AT] + crc.to_bytes(4, "big") + data[CRC_AT + 4 :]


class Unmappable(OsFileSystem):
    """A file system that cannot map, as some network ones cannot."""

    def open_readable(self, path: str) -> ReadableFile:
        class File(OsReadableFile):
            def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
                raise StorageError("no such device", path=self.path)

        return File(path)
