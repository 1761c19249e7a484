"""Producers rebuilt from real logs: our transaction indexes and snapshots are Kafka's, byte for byte.

Every ``.log`` that Kafka wrote since 0.8 is replayed from its first segment on; the state before each
segment and at the end must be the ``.snapshot`` that stands there, and what the replay indexes the
``.txnindex``. Where records are gone, Kafka knew more than its log now tells; those sets are named below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.records.columns import Selection, column_mask, decode_records
from stratalog.records.control import ControlRecord, parse_control
from stratalog.records.layout import Check
from stratalog.records.model import BatchHeader
from stratalog.records.scan import STRICT, scan_batches
from stratalog.storage.producers.snapshot import encode_snapshot
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.txn_index import encode_entry
from tests.judges.peers.golden import GoldenPartition, GoldenSet, golden_sets

#: Files that a log alone does not give, by partition folder, and why.
TOLD_BY_NO_LOG = {
    # Compaction took the batches that Kafka had seen.
    "v2-compacted/Invoices_tundra-0": {"387.snapshot", "408.snapshot"},
    "v2-compacted/clicks-0": {"284.snapshot", "297.snapshot", "297.txnindex"},
    # Retention took the first segments.
    "v2-compact-delete/profiles-0": {f"{n}.snapshot" for n in (109, 228, 266, 304, 327)},
    # Restarted several times: old timestamps made producers expire.
    "v2-leader-epochs/Accounts_island-0": {"84.snapshot", "110.snapshot", "145.snapshot"},
    # A flipped bit ends the segment before its end.
    "v2-torn/nectar-payments-1": {"50.snapshot"},
}

Partition = tuple[GoldenSet, GoldenPartition]
PARTITIONS: list[Partition] = [
    (golden, partition)
    for golden in golden_sets()
    if not golden.is_v07
    for partition in (*golden.partitions(), *golden.recovered())
]


def name_of(golden: GoldenSet, partition: GoldenPartition) -> str:
    return partition.dir.relative_to(golden.path.parent).as_posix()


def markers_of(data: bytes, header: BatchHeader) -> dict[int, ControlRecord]:
    if not (header.is_control and header.record_count):
        return {}
    batch = memoryview(data)[header.position : header.end_position]
    (record,) = decode_records(batch, _WITH_CONTROL)
    return {header.base_offset: parse_control(record.key, record.value)}


_WITH_CONTROL = Selection(
    columns=column_mask(["offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"]),
    check=Check.CRC | Check.INCLUDE_CONTROL,
)


def files_of(partition: GoldenPartition) -> Iterator[tuple[Path, bytes]]:
    """The snapshots and transaction indexes of a partition as we would write them; a snapshot at each
    base and at the end, an index for each segment, empty where there is no file to be."""
    states = ProducerStates()
    next_offset = 0
    for segment in partition.segments:
        base_offset = int(segment.stem)
        yield partition.dir / f"{base_offset:020}.snapshot", snapshot_of(states)
        data = segment.read_bytes()
        index = b""
        for header in scan_batches(data, check=STRICT):
            aborted = states.replay([header], markers_of(data, header))
            index += b"".join(map(encode_entry, aborted))
            next_offset = header.next_offset
        yield segment.with_suffix(".txnindex"), index
    yield partition.dir / f"{next_offset:020}.snapshot", snapshot_of(states)


def snapshot_of(states: ProducerStates) -> bytes:
    return encode_snapshot(states.snapshot_entries())


def compare(golden: GoldenSet, partition: GoldenPartition) -> tuple[Counter[str], set[str]]:
    """How many files were compared, of each kind, and which are not the same."""
    compared, different = Counter[str](), set()
    for path, ours in files_of(partition):
        is_index = path.suffix == ".txnindex"
        if not path.exists() and (not is_index or not ours):
            continue
        kafkas = path.read_bytes() if path.exists() else b""
        compared[path.suffix] += 1
        compared[f"{path.suffix} with entries"] += len(kafkas) > (0 if is_index else 10)
        if ours != kafkas:
            different.add(f"{int(path.stem)}{path.suffix}")
    return compared, different


@pytest.mark.parametrize(
    ("golden", "partition"), PARTITIONS, ids=[name_of(*each) for each in PARTITIONS]
)
def test_replay_gives_kafkas_files(golden: GoldenSet, partition: GoldenPartition) -> None:
    _, different = compare(golden, partition)
    assert different == TOLD_BY_NO_LOG.get(name_of(golden, partition), set())


def test_enough_is_compared() -> None:
    compared = Counter[str]()
    for golden, partition in PARTITIONS:
        compared += compare(golden, partition)[0]
    print(dict(compared))
    assert compared[".snapshot"] >= 170
    assert compared[".snapshot with entries"] >= 60
    assert compared[".txnindex with entries"] >= 11
