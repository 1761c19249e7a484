"""Rewrites against what the system, or a codec alone, does with the same bytes.

Both sides are durable at the end: our rewrites fsync what they swap in, and ``cp`` is followed by an fsync of
every file and of the folder. Neither side drops the page cache. Our time includes the reading, the checks of
every CRC before and after, the indexes and the swap; opening the log is not timed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.harness import Bar, Setup, Workload, case
from bench.logs import calm, make_rows
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.compression import Decompressor, compress
from stratalog.records.layout import Codec
from stratalog.records.scan import scan_batches
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.merge import Merge
from stratalog.rewrite.operation import GroupRecorder, Rewrite
from stratalog.rewrite.plan import rewrite_end
from stratalog.rewrite.recompress import Recompress
from stratalog.rewrite.reindex.examine import examine_log
from stratalog.rewrite.reindex.replace import replace_indexes
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog

GIB = 1 << 30
MIB = 1 << 20
_ROWS = 4096
_PER_BATCH = 16
_CONFIG = LogConfig.of({"max.message.bytes": 4 * MIB})


class Template:
    """A closed log of several segments, of which each round gets a copy. Segments are linked, not copied: a
    rewrite puts new files in their place and does not touch the old ones."""

    def __init__(self, setup: Setup, segments: int, size: int, **options: object) -> None:
        self._folder = setup.folder / "template"
        self._copies = setup.folder
        self._folder.mkdir()
        self._count = 0
        builder = BatchBuilder(BatchOptions(batch_bytes=_PER_BATCH * 1043, **options))  # type: ignore[arg-type]
        rows = make_rows(1024, rows=_ROWS, text="codec" in options)
        log = PartitionLog.open(str(self._folder), _CONFIG, watermark="written")
        for _ in range(segments):
            start = log.segments[-1].size_bytes
            while log.segments[-1].size_bytes - start < size:
                builder.append(rows)
                log.append_as_follower(bytes(builder.out))
                builder.out.clear()
            log.roll()
        self.size = sum(each.size_bytes for each in log.segments)
        log.close()

    def copy(self) -> Path:
        self._count += 1
        folder = self._copies / f"copy-{self._count}"
        folder.mkdir()
        for path in self._folder.iterdir():
            is_sealed = path.suffix == ".log" and path.stat().st_size
            (os.link if is_sealed else shutil.copy)(path, folder / path.name)
        return folder

    def open(self, folder: Path) -> PartitionLog:
        return PartitionLog.open(str(folder), _CONFIG, is_clean=True, watermark="written")

    def data(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.log") if path.stat().st_size)


def rewriting(template: Template, make: Callable[[], Rewrite]) -> Callable[[], float]:
    """Time a rewrite of a copy, in milliseconds."""

    def ours() -> float:
        folder = template.copy()
        log = template.open(folder)
        rewrite = make()
        started = time.perf_counter()
        plan = rewrite.plan(log.view, _CONFIG, rewrite_end(log.view), lambda _: None, counts=False)
        done = list(rewrite.carry_out(log, plan, _CONFIG, RewriteLimits(), GroupRecorder()))
        taken = time.perf_counter() - started
        assert done
        log.abandon()
        shutil.rmtree(folder)
        return taken * 1e3

    return ours


def copying(setup: Setup, paths: Iterable[Path]) -> Callable[[], float]:
    """Time ``cp`` of some files and an fsync of each, in milliseconds."""
    listed = [str(path) for path in paths]

    def peer() -> float:
        folder = setup.folder / "cp"
        folder.mkdir()
        started = time.perf_counter()
        subprocess.run(["cp", *listed, str(folder)], check=True)
        for path in (*folder.iterdir(), folder):
            sync(path)
        taken = time.perf_counter() - started
        shutil.rmtree(folder)
        return taken * 1e3

    return peer


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@case(
    "rewrite-merge",
    work="merge 1 GiB, in segments of 16 MiB, into one",
    unit="ms",
    peer="cp of the files, and fsync",
    bar=Bar(ratio=0.5),
)
def merge(setup: Setup) -> Workload:
    size = setup.scaled(GIB)
    count = 8 if setup.quick else 64
    template = Template(setup, count, size // count)
    return Workload(
        ours=rewriting(template, Merge),
        peer=copying(setup, template.data()),
        before=lambda: calm(setup.folder, 2 * size),
    )


@case(
    "rewrite-erase",
    work="erase 1 % of the keys in 1 GiB of 1 KiB values",
    unit="ms",
    peer="cp of the files, and fsync",
    bar=Bar(ratio=0.4),
)
def erase(setup: Setup) -> Workload:
    size = setup.scaled(GIB)
    count = 2 if setup.quick else 8
    template = Template(setup, count, size // count)
    keys = KeySet.of([b"key-%05d" % number for number in range(50, _ROWS, 100)])
    return Workload(
        ours=rewriting(template, lambda: Erase(Targets(keys))),
        peer=copying(setup, template.data()),
        before=lambda: calm(setup.folder, 2 * size),
    )


@case(
    "rewrite-reindex",
    work="rebuild all indexes of 1 GiB from the log",
    unit="ms",
    peer="recovery of the same log",
    bar=Bar(ratio=0.9),
)
def reindex(setup: Setup) -> Workload:
    size = setup.scaled(GIB)
    template = Template(setup, 4, size // 4)

    def ours() -> float:
        folder = template.copy()
        log = template.open(folder)
        started = time.perf_counter()
        found = examine_log(
            log.file_system, log.folder, log.view, log.index_limits, lambda _: None,
            rebuilds_all=True,
        )  # fmt: skip
        with log.rewriting():
            replaced = sum(replace_indexes(log, each, RewriteLimits()) for each in list(found))
        taken = time.perf_counter() - started
        assert replaced == 8
        log.abandon()
        shutil.rmtree(folder)
        return taken * 1e3

    def recovery() -> float:
        folder = template.copy()
        started = time.perf_counter()
        log = PartitionLog.open(str(folder), _CONFIG, watermark="written")
        taken = time.perf_counter() - started
        assert len(log.report.recovered_segments) == 5
        log.abandon()
        shutil.rmtree(folder)
        return taken * 1e3

    return Workload(ours=ours, peer=recovery, before=lambda: calm(setup.folder, size))


@case(
    "rewrite-recompress",
    work="recompress 1 GiB of records in batches of 16 KiB from zstd to lz4",
    unit="ms",
    peer="the codecs alone, on payloads in memory, a write of the result, and fsync",
    bar=Bar(ratio=0.8),
)
def recompress(setup: Setup) -> Workload:
    size = setup.scaled(GIB) // 4  # the text compresses to about a quarter
    template = Template(setup, 2, size // 2, codec=Codec.ZSTD)
    payloads = []
    for path in template.data():
        data = path.read_bytes()
        payloads += [
            data[each.payload_position : each.payload_position + each.payload_size_bytes]
            for each in scan_batches(data)
        ]

    def codecs() -> float:
        path = setup.folder / "codecs"
        decompressor = Decompressor()
        started = time.perf_counter()
        fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        for payload in payloads:
            os.write(fd, compress(Codec.LZ4, decompressor.decompress(Codec.ZSTD, payload)))
        os.fsync(fd)
        os.close(fd)
        taken = time.perf_counter() - started
        path.unlink()
        return taken * 1e3

    return Workload(
        ours=rewriting(template, lambda: Recompress(Codec.LZ4)),
        peer=codecs,
        before=lambda: calm(setup.folder, 4 * size),
    )
