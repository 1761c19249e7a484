"""What the property tests of this folder feed on: records, batches and message sets, right and damaged."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from fuzz.seeds import repair_crcs
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import scan_batches

payloads = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
int64 = st.integers(-(2**63), 2**63 - 1)
timestamps = st.integers(0, 2**41) | st.integers(-(2**41), 0) | int64 | st.just(-1)
headers = st.lists(
    st.builds(RecordHeader, st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=4
)


@st.composite
def records(draw: st.DrawFn, *, with_headers: bool = True) -> list[Record]:
    count = draw(st.integers(1, 6))
    offset = draw(st.integers(0, 2**40) | st.integers(0, 50))
    made = []
    for _ in range(count):
        made.append(
            Record(
                key=draw(payloads),
                value=draw(payloads),
                timestamp=draw(timestamps),
                headers=tuple(draw(headers)) if with_headers else (),
                offset=offset,
            )
        )
        offset += draw(st.integers(1, 3))
    return made


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    options = BatchOptions(
        codec=draw(st.sampled_from(Codec)),
        append_time=draw(st.none() | timestamps),
        producer_id=draw(st.just(-1) | st.integers(0, 2**40)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.just(-1) | st.integers(2**31 - 4, 2**31 - 1) | st.integers(0, 9)),
        leader_epoch=draw(st.integers(-1, 9)),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
        delete_horizon_ms=draw(st.none() | timestamps),
    )
    batch = build_batch(draw(records()), options)
    if draw(st.integers(0, 9)) == 0:
        (header,) = scan_batches(batch)
        return empty_batch(header)
    return batch


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    magic = draw(st.sampled_from([0, 1]))
    options = MessageOptions(
        magic=magic,
        codec=draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])),
        append_time=draw(st.none() | timestamps) if magic == 1 else None,
    )
    return build_messages(draw(records(with_headers=False)), options)


def mutate(data: bytes, seed: int, times: int) -> bytes:
    """Flip, cut, insert, overwrite: what disks, hands and bad producers do."""
    rng = random.Random(seed)
    out = bytearray(data)
    for _ in range(times):
        at = rng.randrange(len(out) + 1) if out else 0
        match rng.randrange(5):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:]
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(4))
            case 3 if out:
                out[at % len(out)] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
            case 4:
                out += bytes(rng.randrange(40))
    return bytes(out)


logs = st.lists(batches() | message_sets(), min_size=1, max_size=3).map(b"".join)
mutations = st.tuples(st.integers(0, 2**32), st.integers(0, 4), st.booleans())


def mutated(log: bytes, mutation: tuple[int, int, bool]) -> bytes:
    seed, times, fixed = mutation
    log = mutate(log, seed, times)
    return repair_crcs(log) if fixed else log
