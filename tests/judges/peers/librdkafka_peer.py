"""librdkafka as a builder and a parser, through confluent-kafka and a broker of our own.

librdkafka builds batches only on their way to a broker, so `WirePeer` plays the broker. One call
takes many jobs, each in a partition of its own, over one connection.

    (batches,) = produce([records], codec="zstd")     # the record sets as they were sent
    (found,) = consume([record_set])                  # check.crcs=true; CRC damage is a PeerError
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.judges.peers.model import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP_TYPE,
    Case,
    Codec,
    Magic,
    PeerError,
    PeerRecord,
    codec_of,
    magic_of,
    place_at,
    renumbered,
    split_entries,
)
from tests.judges.peers.wire_peer import TOPIC, Served, WirePeer

NAME = "librdkafka"
TIMEOUT_S = 30.0

PRODUCE_VERSION: dict[Magic, int] = {0: 1, 1: 2, 2: 7}
"""The newest Produce (and Fetch) that is offered decides the magic which librdkafka writes."""

_QUIET = {"log_level": 0, "socket.timeout.ms": 10_000, "broker.address.family": "v4"}


def cannot_build(case: Case) -> str | None:
    """Why this peer cannot write the case; None when it can."""
    if any(record.timestamp == 0 for record in case.records):
        return "it takes timestamp 0 for 'now'"
    if case.transactional:
        return "it would need a transaction coordinator"
    return None


def cannot_parse(case: Case) -> str | None:
    """Why this peer cannot read the case, rightly written by another; None when it can."""
    if case.magic == 1 and any(record.timestamp == 0 for record in case.records):
        return "it takes timestamp 0 of magic 1 for 'none'"
    return None


def produce(
    jobs: Sequence[Sequence[PeerRecord]],
    *,
    codec: Codec = "none",
    magic: Magic = 2,
    producer: tuple[int, int] | None = None,
    max_records_per_batch: int = 1_000_000,
) -> list[list[bytes]]:
    """The record sets that librdkafka sends for each job, untouched. Offsets in them begin at 0.

    A job is one batch unless `max_records_per_batch` cuts it. `producer` is the (id, epoch) that an
    idempotent producer is given; its sequences begin at 0 in every job.
    """
    config: dict[str, Any] = {
        **_QUIET,
        "compression.type": codec,
        "linger.ms": int(TIMEOUT_S * 1000) - 1,  # until flush
        "batch.num.messages": max_records_per_batch,
        "batch.size": 2**31 - 1,
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2**31 - 1,
        "enable.idempotence": producer is not None,
        "max.in.flight": 1,
        "message.timeout.ms": int(TIMEOUT_S * 1000),
    }
    version = PRODUCE_VERSION[magic]
    with WirePeer(
        partitions=len(jobs),
        produce_version=version,
        fetch_version=10 if magic == 2 else version,
        producer=producer or (1000, 0),
    ) as broker:
        refused: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error.str())

        client = Producer({**config, "bootstrap.servers": broker.bootstrap})
        for partition, records in enumerate(jobs):
            for record in records:
                client.produce(
                    TOPIC,
                    key=record.key,
                    value=record.value,
                    partition=partition,
                    timestamp=record.timestamp if magic else 0,
                    headers=list(record.headers) or None,
                    on_delivery=delivered,
                )
        left = client.flush(TIMEOUT_S)
        del client
    if left or refused:
        raise PeerError(f"{NAME}: {left} records were not sent; {refused[:1]}")
    return [broker.produced[partition] for partition in range(len(jobs))]


def build_cases(cases: Sequence[Case]) -> list[tuple[Case, bytes]]:
    """For each case what librdkafka makes of it, and the case that the bytes then are.

    The difference: no gaps between offsets, a compressed magic 0 set begins at offset 0, sequences
    begin at 0, and idempotent cases that are sent together have the same producer id and epoch.
    Cases of one magic and codec are sent together, and all the groups at once.
    """
    groups: dict[tuple[Magic, Codec, bool], list[int]] = {}
    for index, case in enumerate(cases):
        key = (case.magic, case.codec, case.producer_id >= 0)
        groups.setdefault(key, []).append(index)
    built: dict[int, tuple[Case, bytes]] = {}
    with ThreadPoolExecutor(max_workers=8) as pool:
        work = [[cases[index] for index in members] for members in groups.values()]
        for members, results in zip(groups.values(), pool.map(_build_alike, work), strict=True):
            built.update(zip(members, results, strict=True))
    return [built[index] for index in range(len(cases))]


def _build_alike(cases: Sequence[Case]) -> list[tuple[Case, bytes]]:
    first = cases[0]
    producer = None if first.producer_id < 0 else (first.producer_id, first.producer_epoch)
    sent = produce(
        [case.records for case in cases], codec=first.codec, magic=first.magic, producer=producer
    )
    results = []
    for case, (record_set,) in zip(cases, sent, strict=True):
        is_wrapper = case.magic == 0 and codec_of(record_set) != "none"
        base_offset = 0 if is_wrapper else case.base_offset
        written = replace(
            case,
            records=tuple(renumbered(case.records, base_offset)),
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=-1 if producer is None else 0,
        )
        results.append((written, place_at(record_set, base_offset, len(case.records))))
    return results


def build(
    records: Sequence[PeerRecord],
    *,
    magic: Magic = 2,
    codec: Codec = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """One batch (or message set) from the first record's offset on. Use `produce` for many."""
    producer = None if producer_id < 0 else (producer_id, producer_epoch)
    ((built,),) = produce([records], magic=magic, codec=codec, producer=producer)
    return place_at(built, records[0].offset, len(records))


def consume(
    record_sets: Sequence[bytes | Served], *, timeout_s: float = TIMEOUT_S
) -> list[list[PeerRecord]]:
    """The records that librdkafka finds in each record set, of any magics; control records never.

    Plain bytes are read from their first offset to the end; `Served` says otherwise.
    """
    served = [_served(item) if isinstance(item, bytes) else item for item in record_sets]
    found: list[list[PeerRecord]] = [[] for _ in served]
    config = {
        **_QUIET,
        "group.id": "peer",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.wait.max.ms": 10,
        "fetch.message.max.bytes": 100_000_000,
        "fetch.max.bytes": 1_000_000_000,
        "receive.message.max.bytes": 1_000_001_000,
        "fetch.error.backoff.ms": 10,
    }
    with WirePeer(served=served) as broker:
        client = Consumer({**config, "bootstrap.servers": broker.bootstrap})
        try:
            client.assign(
                [TopicPartition(TOPIC, i, item.start_offset) for i, item in enumerate(served)]
            )
            _drain(client, found, timeout_s)
        finally:
            client.close()
    return found


def _drain(client: Consumer, found: list[list[PeerRecord]], timeout_s: float) -> None:
    open_partitions = set(range(len(found)))
    deadline = time.monotonic() + timeout_s
    while open_partitions:
        left = deadline - time.monotonic()
        if left <= 0:
            raise PeerError(f"{NAME}: no end of {len(open_partitions)} partitions in time")
        for message in client.consume(10_000, min(left, 0.01)):
            error = message.error()
            if error is None:
                found[_known(message.partition())].append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise PeerError(f"{NAME}: {error.str()} (partition {message.partition()})")


def _served(record_set: bytes) -> Served:
    """From offset 0 on, because only the last offset of a wrapper can be seen."""
    *_, last = split_entries(record_set)
    (end,) = struct.unpack_from(">q", last)
    if magic_of(last) == 2:
        end += struct.unpack_from(">i", last, 23)[0]
    return Served(record_set, 0, end + 1)


def _record(message: Message) -> PeerRecord:
    kind, timestamp = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        timestamp = -1
    kinds = {TIMESTAMP_CREATE_TIME: CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME: LOG_APPEND_TIME}
    headers: Any = message.headers()
    return PeerRecord(
        _known(message.offset()),
        timestamp,
        kinds.get(kind, NO_TIMESTAMP_TYPE),
        message.key(),
        message.value(),
        tuple(headers or ()),
    )


def _known(number: int | None) -> int:
    assert number is not None
    return number
