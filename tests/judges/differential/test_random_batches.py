"""Batches that kafka-python, aiokafka (compiled and pure) and librdkafka build decode equal here, and ours
decode equal there: every magic and codec, headers, nulls, gaps, negative and huge deltas, timestamps before
1970, base offsets up to 2^62.

`make test` tries hundreds of cases with each peer in each direction, `make nightly` twenty thousand. What a
peer cannot do is left out and counted: `judges/peers/test_peers.py` has the table. A floor under the number
of cases for each peer, magic and codec sees to it that nothing is left out unnoticed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from stratalog.records.builder import BatchBuilder, BatchOptions, build_batch, rows_of_records
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import (
    INT64_MAX,
    Check,
    Codec,
    Column,
    Ending,
)
from stratalog.records.legacy import MessageBuilder, MessageOptions
from stratalog.records.model import BatchHeader, Record, next_sequence
from stratalog.records.scan import STRICT, scan_batches
from tests.judges.peers.cases import random_cases
from tests.judges.peers.model import CODEC_NUMBERS, CODECS, MAGICS, Case, PeerRecord
from tests.judges.peers.model import Codec as CodecName
from tests.judges.peers.ours import as_record, write_case
from tests.judges.peers.registry import AIOKAFKA_COMPILED, AIOKAFKA_PURE, LIBRDKAFKA, PEERS, Peer
from tests.scale import IS_QUICK, SCALE, fresh

pytestmark = pytest.mark.scaled

CASES_AT_ONCE = 400
each_peer = pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])

RECORD_COLUMNS = (
    Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS
)


def rounds(seed: int) -> Iterator[list[Case]]:
    """As many rounds of cases as the scale asks for, each from a seed of its own."""
    for number in range(SCALE):
        yield random_cases(fresh(seed * 1_000_000 + number), CASES_AT_ONCE)


def as_peer(record: Record) -> PeerRecord:
    headers = tuple((header.key, header.value) for header in record.headers)
    kind = int(record.timestamp_type)
    return PeerRecord(record.offset, record.timestamp, kind, record.key, record.value, headers)


def read(record_set: bytes, case: Case) -> list[PeerRecord]:
    """The records by our strictest reading, with the offset that must come first."""
    check = STRICT if case.has_offset_gaps else STRICT | Check.CONTIGUOUS
    selection = Selection(columns=RECORD_COLUMNS, check=check)
    return [as_peer(record) for record in decode_records(record_set, selection)]


def headers_of(record_set: bytes, base_offset: int) -> list[BatchHeader]:
    scan = scan_batches(record_set, check=STRICT, expected_offset=base_offset)
    headers = list(scan)
    assert scan.end.ending == Ending.END, scan.end
    return headers


def check_headers(case: Case, record_set: bytes) -> None:
    headers = headers_of(record_set, case.base_offset)
    assert {header.magic for header in headers} == {case.magic}
    assert headers[-1].last_offset == case.records[-1].offset
    if case.magic < 2:
        return
    (header,) = headers
    assert header.base_offset == case.base_offset
    assert header.record_count == len(case.records)
    assert header.producer_id == case.producer_id
    assert header.producer_epoch == case.producer_epoch
    assert header.base_sequence == case.base_sequence
    assert header.is_transactional == case.transactional
    assert not header.is_control
    if case.base_sequence >= 0:
        span = case.records[-1].offset - case.base_offset
        assert header.last_sequence == next_sequence(case.base_sequence, span)
    # Some start the maximum at 0 or -1: it may be above every timestamp, never below.
    assert header.max_timestamp >= max(record.timestamp for record in case.records)


def floor(peer: Peer, compared: Counter[tuple[int, CodecName]], *, building: bool) -> None:
    """At least so many cases of every format that the peer has at all."""
    least = {0: 6, 1: 6, 2: 12} if IS_QUICK else {0: 1, 1: 1, 2: 3}  # fresh cases vary
    for magic in MAGICS:
        for codec in CODECS:
            if magic < 2 and codec == "zstd":
                continue
            no_lz4 = peer in (AIOKAFKA_COMPILED, AIOKAFKA_PURE) and (magic, codec) == (0, "lz4")
            found = compared[magic, codec]
            if no_lz4:
                assert found == 0
            else:
                assert found >= least[magic] * SCALE, (peer.name, magic, codec, found)
    total = sum(compared.values())
    tried = CASES_AT_ONCE * SCALE
    # librdkafka has no transactions to write and no timestamp 0.
    share = 0.6 if building and peer is LIBRDKAFKA else 0.75
    assert share * tried <= total <= tried
    verb = "built by" if building else "read by"
    print(f"{total} of {tried} cases {verb} {peer.name}")


@each_peer
def test_batches_that_a_peer_built_decode_equal_here(peer: Peer) -> None:
    compared = Counter[tuple[int, CodecName]]()
    for cases in rounds(seed=31):
        built = peer.build(cases)
        refused = sum(peer.cannot_build(case) is not None for case in cases)
        assert len(built) + refused == len(cases)
        for case, record_set in built:
            assert read(record_set, case) == list(case.records), (peer.name, case.magic, case.codec)
            check_headers(case, record_set)
            compared[case.magic, case.codec] += 1
    floor(peer, compared, building=True)


@each_peer
def test_batches_that_we_built_decode_equal_at_a_peer(peer: Peer) -> None:
    compared = Counter[tuple[int, CodecName]]()
    for cases in rounds(seed=32):
        found = peer.parse((case, write_case(case)) for case in cases)
        refused = sum(peer.cannot_parse(case) is not None for case in cases)
        assert len(found) + refused == len(cases)
        for case, records in found:
            assert records == list(case.records), (peer.name, case.magic, case.codec)
            compared[case.magic, case.codec] += 1
    floor(peer, compared, building=False)


def test_batches_that_we_built_decode_equal_here() -> None:
    """No case is left out here, so what one peer cannot judge is at least read back."""
    seen = Counter[str]()
    for cases in rounds(seed=32):
        for case in cases:
            record_set = write_case(case)
            assert read(record_set, case) == list(case.records)
            check_headers(case, record_set)
            seen.update(_corners(case))
    share = 1 if IS_QUICK else 0.25  # fresh cases vary
    assert all(seen[corner] >= share * least * SCALE for corner, least in CORNERS.items()), seen
    print(dict(seen))


def _corners(case: Case) -> Iterator[str]:
    records = case.records
    yield "all"
    if case.has_offset_gaps:
        yield "gaps"
    if case.has_wrapping_deltas:
        yield "wrapping deltas"
    if case.base_offset >= 2**61:
        yield "huge base offset"
    if any(record.timestamp < -1 for record in records):
        yield "before 1970"
    if any(abs(record.timestamp - records[0].timestamp) > 2**40 for record in records):
        yield "huge deltas"
    if any(record.timestamp < records[0].timestamp for record in records):
        yield "negative deltas"
    if any(record.headers for record in records):
        yield "headers"
    if any(value is None for record in records for _, value in record.headers):
        yield "null header values"
    if any(record.key is None or record.value is None for record in records):
        yield "nulls"
    if any(len(record.value or b"") > 1 << 16 for record in records):
        yield "large values"


#: What a round of cases must reach at least this often.
CORNERS = {
    "all": CASES_AT_ONCE,
    "gaps": 20,
    "wrapping deltas": 8,
    "huge base offset": 40,
    "before 1970": 60,
    "huge deltas": 40,
    "negative deltas": 60,
    "headers": 80,
    "null header values": 40,
    "nulls": 100,
    "large values": 3,
}


@each_peer
def test_logs_of_many_batches_decode_equal_at_a_peer(peer: Peer) -> None:
    """All formats mixed, cut into batches by our builders, offsets carried from one to the next."""
    rng = random.Random(fresh(33))
    for cases in rounds(seed=33):
        logs = []
        for at in range(0, 200, 20):
            able = [case for case in cases[at : at + 20] if peer.cannot_parse(case) is None]
            logs.append(_mixed_log(rng, filter(_may_be_cut, able)))
        found = peer.parse_all([log for log, _ in logs])
        for (log, wanted), records in zip(logs, found, strict=True):
            assert records == wanted, peer.name
            assert [as_peer(record) for record in decode_records(log)] == wanted
        assert sum(len(wanted) for _, wanted in logs) >= 1500


def _may_be_cut(case: Case) -> bool:
    """Wherever a batch begins, no delta in it wraps: the peers in Python cannot read those."""
    times = [record.timestamp for record in case.records]
    return max(times) - min(times) <= INT64_MAX


def _mixed_log(rng: random.Random, cases: Iterable[Case]) -> tuple[bytes, list[PeerRecord]]:
    out = bytearray()
    wanted: list[PeerRecord] = []
    offset = rng.choice((0, 5, 2**40))
    for case in cases:
        records = [record._replace(offset=offset + i) for i, record in enumerate(case.records)]
        rows = rows_of_records([replace(as_record(record), offset=-1) for record in records])
        codec = Codec(CODEC_NUMBERS[case.codec])
        size = rng.choice((1, 500, 16384))
        if case.magic == 2:
            batch_options = BatchOptions(codec=codec, batch_bytes=size)
            BatchBuilder(batch_options, next_offset=offset, out=out).append(rows)
        else:
            options = MessageOptions(magic=case.magic, codec=codec, wrapper_bytes=size)
            MessageBuilder(options, next_offset=offset, out=out).append(rows)
        wanted += records
        offset += len(records)
    return bytes(out), wanted


def levels(codec: CodecName) -> Sequence[int]:
    return {"gzip": (1, 6, 9), "lz4": (1, 3, 9, 12, 17), "zstd": (-5, 1, 3, 10, 19)}.get(codec, ())


@each_peer
def test_every_level_of_a_codec_decodes_equal_at_a_peer(peer: Peer) -> None:
    text = [b" ".join([b"harbor", b"yonder", b"%d" % (i * i)] * 9) for i in range(200)]
    records = [Record(value=value, timestamp=1 + i, offset=i) for i, value in enumerate(text)]
    sets = [
        build_batch(records, BatchOptions(codec=Codec(CODEC_NUMBERS[codec]), level=level))
        for codec in CODECS
        for level in levels(codec)
    ]
    assert len(sets) == 13
    wanted = [as_peer(record) for record in records]
    assert all(found == wanted for found in peer.parse_all(sets))
