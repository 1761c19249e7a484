"""Partition folders for the tests of the log, and a small language to look at them.

A folder of the reference outcomes holds segments of five batches, each of one record and 79 bytes, all of
leader epoch 3. Records are read back as a consumer does: through regions, batch by batch.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop
from pathlib import Path
from typing import Any

from stratalog.clock import Clock
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Codec
from stratalog.records.model import BatchHeader, Record
from stratalog.records.scan import scan_batches
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import Isolation
from stratalog.testing.clock import START_MS, ManualClock

T = START_MS
#: What one batch of the reference outcomes takes.
SIZE = 79
EPOCH = 3
BATCHES = 5


# --- batches -------------------------------------------------------------------------------------


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int | Sequence[int] = T,
    base_offset: int = 0,
    **options: Any,
) -> bytes:
    """One batch as a producer sends it: a record for each value, offsets from ``base_offset`` on."""
    times = [timestamp] * len(values) if isinstance(timestamp, int) else timestamp
    return build_batch(
        [Record(value, key, time) for value, time in zip(values or (b"v",), times, strict=True)],
        BatchOptions(**options),
        base_offset=base_offset,
    )


def small(offset: int, *, epoch: int = EPOCH, timestamp: int | None = None) -> bytes:
    """The batch of the reference outcomes, as a leader has stored it."""
    data = batch(
        b"%011d" % offset,
        timestamp=T + offset if timestamp is None else timestamp,
        base_offset=offset,
        leader_epoch=epoch,
    )
    assert len(data) == SIZE
    return data


def sent(producer_id: int, sequence: int, *values: bytes, **options: Any) -> bytes:
    """A batch of an idempotent producer."""
    options = {"producer_epoch": 0, **options}
    return batch(*values, producer_id=producer_id, base_sequence=sequence, **options)


def in_txn(producer_id: int, sequence: int, *values: bytes, **options: Any) -> bytes:
    return sent(producer_id, sequence, *values, is_transactional=True, **options)


def end_txn(
    log: PartitionLog, kind: ControlType, producer_id: int, *, epoch: int = 0, timestamp: int = T
) -> AppendResult:
    """Append a marker as a coordinator does."""
    marker = build_marker(
        kind,
        offset=0,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
    )
    return log.append(marker, origin=Origin.COORDINATOR)


def flip(path: Path, position: int, bit: int = 0) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


# --- folders -------------------------------------------------------------------------------------


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def write_segment(
    folder: Path, base: int, offsets: Iterable[int] | None = None, *, stage: str = ""
) -> None:
    """A segment as an orderly stop leaves it: small batches, an empty index, one time entry."""
    offsets = list(range(base, base + BATCHES) if offsets is None else offsets)
    (folder / name(base, f".log{stage}")).write_bytes(b"".join(map(small, offsets)))
    (folder / name(base, f".index{stage}")).write_bytes(b"")
    entry = struct.pack(">qi", T + offsets[-1], offsets[-1] - base)
    (folder / name(base, f".timeindex{stage}")).write_bytes(entry)


def write_segments(folder: Path, *bases: int) -> Path:
    folder.mkdir(exist_ok=True)
    for base in bases:
        write_segment(folder, base)
    return folder


def files(folder: Path, *, kept: Sequence[str] = ()) -> dict[str, int]:
    """The files of a folder with their sizes; names without the zeros in front."""
    return {
        entry.name.lstrip("0") if not entry.name.startswith("0" * 20) else entry.name[19:]: size
        for entry in sorted(folder.iterdir())
        if (size := entry.stat().st_size) >= 0 and entry.name not in kept
    }


def epoch_text(folder: Path) -> str:
    return (folder / "leader-epoch-checkpoint").read_text()


# --- logs ----------------------------------------------------------------------------------------


def open_log(
    folder: Path,
    configs: Mapping[str, object] | None = None,
    *,
    clock: Clock | None = None,
    **how: Any,
) -> PartitionLog:
    """Open a partition's folder, which is made where it is missing; time stands still unless a clock
    is given."""
    folder.mkdir(exist_ok=True)
    config = LogConfig.of(configs or {})
    return PartitionLog.open(
        os.fspath(folder), config, clock=ManualClock() if clock is None else clock, **how
    )


def reopen(log: PartitionLog, **how: Any) -> PartitionLog:
    """Close in order, and open as after an orderly stop."""
    log.close()
    return again(log, is_clean=True, recovery_point=log.recovery_point, **how)


def crash(log: PartitionLog, **how: Any) -> PartitionLog:
    """Let go of everything as a killed process does, and open through recovery."""
    log.abandon()
    return again(log, recovery_point=log.recovery_point, **how)


def again(log: PartitionLog, **how: Any) -> PartitionLog:
    return PartitionLog.open(
        log.folder,
        log.config,
        clock=log._state.clock,
        log_start=how.pop("log_start", log.log_start),
        **how,
    )


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def log_bytes(log: PartitionLog) -> bytes:
    """All batches of a log, from its files."""
    return b"".join(
        Path(segment.path(FileKind.LOG)).read_bytes()[: segment.size_bytes]
        for segment in log.segments
    )


def headers(data: bytes) -> list[BatchHeader]:
    return list(scan_batches(data))


# --- reading as a consumer -----------------------------------------------------------------------


def regions(
    log: PartitionLog,
    offset: int | None = None,
    isolation: Isolation = Isolation.LOG_END,
    max_bytes: int = 1 << 20,
) -> Iterator[tuple[bytes, tuple[AbortedTxn, ...]]]:
    """What a consumer gets, answer by answer, until it has caught up: whole batches only."""
    at = log.log_start if offset is None else offset
    while True:
        answer = log.read(at, max_bytes, isolation)
        if answer.region is None:
            return
        data = bytes(answer.region.read())
        found = [header for header in scan_batches(data) if header.end_position <= len(data)]
        assert found, "an answer holds at least one whole batch"
        assert found[0].last_offset >= at
        yield data[: found[-1].end_position], answer.aborted or ()
        at = found[-1].next_offset


def records(
    log: PartitionLog,
    offset: int | None = None,
    isolation: Isolation = Isolation.LOG_END,
    max_bytes: int = 1 << 20,
) -> list[Record]:
    """The records from ``offset`` on, as a consumer of this isolation sees them."""
    start = log.log_start if offset is None else offset
    found: list[Record] = []
    for data, aborted in regions(log, start, isolation, max_bytes):
        for part in _kept(data, aborted) if isolation is Isolation.COMMITTED else [data]:
            found += [record for record in decode_records(part) if record.offset >= start]
    return found


def _kept(data: bytes, aborted: Iterable[AbortedTxn]) -> Iterator[bytes]:
    """The consumer's side of read_committed: leave out the batches of aborted transactions."""
    coming = [(txn.first_offset, txn.producer_id) for txn in aborted]
    heapify(coming)
    active: set[int] = set()
    for header in scan_batches(data):
        while coming and coming[0][0] <= header.last_offset:
            active.add(heappop(coming)[1])
        if header.is_control:
            if header.record_count and _is_abort(data, header):
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            yield data[header.position : header.end_position]


def _is_abort(data: bytes, header: BatchHeader) -> bool:
    # The key of a marker: version, then type, after the record's own length and three small fields.
    return data[header.payload_position + 8] == ControlType.ABORT


def values(
    log: PartitionLog, offset: int | None = None, isolation: Isolation = Isolation.LOG_END
) -> list[bytes | None]:
    return [record.value for record in records(log, offset, isolation)]


def offsets(
    log: PartitionLog, offset: int | None = None, isolation: Isolation = Isolation.LOG_END
) -> list[int]:
    return [record.offset for record in records(log, offset, isolation)]


def plain(record: Record) -> Record:
    """A record without what the log gives it."""
    return replace(record, offset=-1)


ALL_CODECS = tuple(Codec)
