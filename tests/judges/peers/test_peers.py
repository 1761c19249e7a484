"""The peers agree with each other, so what they say about Stratalog can be believed.

Seen with kafka-python 3.0.12, aiokafka 0.14.0, confluent-kafka 2.16.1 (librdkafka 2.16.0). "Writes"
and "reads" are the limits to know when a differential test is built; where a test below pins one,
it fails on the day the limit goes away. kp: kafka-python, ak/c and ak/py: aiokafka compiled and
pure, rd: librdkafka.

| matter                           | kp              | ak/py           | ak/c            | rd              |
|----------------------------------|-----------------|-----------------|-----------------|-----------------|
| magic 0, 1, 2                    | yes             | yes             | yes             | yes             |
| a log of mixed magics            | yes             | yes             | no [1]          | yes             |
| base offset it writes [6]        | 0               | 0               | 0               | 0               |
| gaps between offsets             | yes             | yes             | yes             | reads           |
| leader epoch it writes           | 0               | -1              | -1              | 0               |
| negative timestamps              | yes             | yes             | yes             | yes [2]         |
| first timestamp -1, magic 2      | yes             | yes             | writes it wrong | yes             |
| timestamp -1, magic 1            | yes             | yes             | reads type none | yes             |
| timestamp 0                      | yes             | yes             | yes             | no [3]          |
| deltas beyond int64 (Java wraps) | no              | no              | yes             | yes             |
| header values null, keys UTF-8   | yes             | yes             | yes             | yes             |
| header keys not UTF-8            | refuses         | refuses         | refuses         | SystemError [5] |
| headers in magic 0, 1            | dropped         | dropped         | dropped         | dropped         |
| producer id, epoch, sequence     | any             | any             | any             | sequence 0 only |
| transactional bit                | yes             | yes             | yes             | reads           |
| control records                  | shown           | shown           | shown           | left out        |
| LogAppendTime, empty batches,    | reads           | reads           | reads           | reads           |
|   delete horizon                 |                 |                 |                 |                 |
| snappy it writes                 | xerial, 32 KiB  | xerial, 32 KiB  | xerial, 32 KiB  | one raw block   |
| raw snappy                       | reads           | reads           | reads           | reads           |
| xerial, version little-endian    | reads           | refuses         | refuses         | reads           |
| lz4 in magic 0 (wrong checksum)  | yes [4]         | refuses         | refuses         | yes             |
| lz4 linked blocks, checksums     | reads           | reads           | reads           | reads           |
| lz4 of two frames                | refuses         | reads           | reads           | refuses         |
| zstd of two frames, without size | reads           | reads           | reads           | reads           |
| gzip of two members              | reads           | reads           | reads           | hangs           |
| zlib stream under the gzip codec | refuses         | refuses         | refuses         | reads           |
| zstd in magic 0, 1               | no              | no              | no              | no              |
| what does not shrink, magic 2    | stored as none  | stored as none  | compressed      | stored as none  |
| what does not shrink, magic 0, 1 | wrapped         | wrapped         | wrapped         | stored as none  |

1. Its `MemoryRecords` takes every magic from the first entry; `aiokafka_peer` cuts the
   region itself, so `parse` reads mixed regions with all peers.
2. Its max timestamp starts at 0: a batch of negative timestamps says 0. Others write the maximum.
   So a max timestamp may be larger than every timestamp in the batch, never smaller.
3. It writes the current time for 0, and reads 0 in magic 1 as "no timestamp".
4. Needs `xxhash`. kafka-python's other codecs need `python-snappy`, `lz4`, `zstandard`.
5. Of the Python binding, out of `Message.headers()`; the C library reads them.
6. The peers' `build` then does what a broker does and writes the first record's offset there, which
   no CRC covers; of a magic 1 wrapper the last record's.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record._crecords import MemoryRecords as CompiledMemoryRecords

from tests.judges.peers import aiokafka_peer, kafka_python_peer, librdkafka_peer
from tests.judges.peers.cases import random_cases
from tests.judges.peers.golden import GoldenPartition, GoldenSet, decoded, golden_sets
from tests.judges.peers.model import (
    CODECS,
    CREATE_TIME,
    MAGICS,
    NO_TIMESTAMP_TYPE,
    Case,
    Codec,
    Magic,
    PeerError,
    PeerRecord,
    codec_of,
    magic_of,
    place_at,
    split_entries,
)
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.judges.peers.registry import KAFKA_PYTHON, LIBRDKAFKA, PEERS, Peer
from tests.judges.peers.wire_peer import Served, WirePeer

__all__ = ["kafka_oracle"]

each_peer = pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
each_format = pytest.mark.parametrize(
    ("magic", "codec"), [(m, c) for m in MAGICS for c in CODECS if m == 2 or c != "zstd"]
)

CORNERS = (
    PeerRecord(0, 1_710_304_000_000, CREATE_TIME, b"key", b"value", (("h", b"v"),)),
    PeerRecord(0, 1_710_304_000_001, CREATE_TIME, None, None),
    PeerRecord(0, 1_710_303_000_000, CREATE_TIME, b"", b"", (("h", None), ("h", b""), ("", b"x"))),
    PeerRecord(0, -1_000, CREATE_TIME, bytes(range(256)), b"\r\n\0", (("日本", b"\xff"),)),
    PeerRecord(0, -(2**62), CREATE_TIME, b"k" * 64, None),
    PeerRecord(0, 2**61, CREATE_TIME, None, b"harbor yonder " * 10_000),
)


def corners(magic: Magic, codec: Codec, base_offset: int = 2**40) -> Case:
    records = [record._replace(offset=base_offset + i) for i, record in enumerate(CORNERS)]
    if magic < 2:
        records = [record._replace(headers=()) for record in records]
    if magic == 0:
        records = [r._replace(timestamp=-1, timestamp_type=NO_TIMESTAMP_TYPE) for r in records]
    return Case(magic, codec, tuple(records))


def test_no_peer_lacks_a_codec_for_want_of_a_package() -> None:
    formats = [(m, c) for m in MAGICS for c in CODECS if m == 2 or c != "zstd"]
    missing = [kafka_python_peer.missing_codec(magic, codec) for magic, codec in formats]
    assert not any(missing), "pip install python-snappy lz4 zstandard xxhash"


@each_format
@each_peer
def test_corner_cases_of_every_format_read_equal_by_every_peer(
    peer: Peer, magic: Magic, codec: Codec
) -> None:
    for case, record_set in peer.build([corners(magic, codec)]):
        assert {magic_of(entry) for entry in split_entries(record_set)} == {magic}
        assert {codec_of(entry) for entry in split_entries(record_set)} == {codec}
        readers = [reader for reader in PEERS if reader.cannot_parse(case) is None]
        assert len(readers) >= 2
        for reader in readers:
            ((_, found),) = reader.parse([(case, record_set)])
            assert found == list(case.records), reader.name


@each_peer
def test_random_cases_read_equal_by_every_peer(peer: Peer) -> None:
    written = peer.build(random_cases(seed=20, count=250))
    assert len(written) > 100
    for reader in PEERS:
        read = reader.parse(written)
        assert len(read) > 100
        for case, found in read:
            assert found == list(case.records), (reader.name, case.magic, case.codec)


@each_peer
def test_producer_fields_are_in_the_header_where_the_format_has_them(peer: Peer) -> None:
    case = Case(2, "lz4", corners(2, "lz4").records, 2**40, 7, 0, transactional=False)
    ((_, batch),) = peer.build([case])
    assert struct.unpack_from(">qhii", batch, 43) == (2**40, 7, 0, len(CORNERS))


@each_peer
def test_one_flipped_bit_is_refused(peer: Peer) -> None:
    for magic in MAGICS:
        batch = bytearray(kafka_python_peer.build([CORNERS[3]], magic=magic))
        batch[-40] ^= 1
        with pytest.raises(PeerError):
            peer.parse_all([bytes(batch)])


@each_peer
def test_mixed_magics_in_one_region_are_read(peer: Peer) -> None:
    cases = [corners(magic, codec, base) for magic, codec, base in _mixture()]
    region = b"".join(KAFKA_PYTHON.build([case])[0][1] for case in cases)
    (found,) = peer.parse_all([region])
    assert found == [record for case in cases for record in case.records]


def _mixture() -> list[tuple[Magic, Codec, int]]:
    return [(0, "gzip", 0), (2, "zstd", 10), (1, "none", 20), (1, "snappy", 30), (2, "none", 40)]


@pytest.mark.interop
@each_peer
def test_real_kafka_finds_every_record_that_a_peer_wrote(
    peer: Peer, kafka_oracle: KafkaOracle, tmp_path: Path
) -> None:
    written = {}
    for magic in MAGICS:
        for codec in CODECS:
            if magic == 2 or codec != "zstd":
                for case, record_set in peer.build([corners(magic, codec, 2**20)]):
                    # The name of a file is its first offset; these say the format instead.
                    path = tmp_path / f"{magic}{CODECS.index(codec)}".zfill(20)
                    written[path.with_suffix(".log")] = case
                    path.with_suffix(".log").write_bytes(record_set)
    assert len(written) >= 12
    dumps = kafka_oracle.dump_log(*written)
    for (path, case), dump in zip(written.items(), dumps, strict=True):
        found = [record for batch in dump.batches for record in batch.records]
        assert dump.complete, path.name
        assert all(batch.is_valid for batch in dump.batches), path.name
        assert [(r.offset, r.timestamp) for r in found] == [r[:2] for r in case.records], path.name


# --- golden data ---------------------------------------------------------------------------------

WHOLE_SETS = [golden for golden in golden_sets() if not (golden.damaged or golden.is_v07)]


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka-compiled", "aiokafka-pure"])
def test_golden_sets_read_as_expected_by_python_peers(name: str) -> None:
    (peer,) = [peer for peer in PEERS if peer.name == name]
    for golden in WHOLE_SETS:
        for partition in golden.partitions():
            expected = _expected(golden, partition)
            found = []
            for segment in partition.segments:
                data = segment.read_bytes()
                for batch in golden.dump_batches(segment):
                    if name != "kafka-python" and batch.magic == 0 and batch.codec in ("lz4", None):
                        expected = _without(expected, batch.base_offset, batch.last_offset)
                    elif not batch.is_control:
                        entry = data[batch.position : batch.position + batch.size]
                        found.extend(peer.parse_all([entry])[0])
            start = golden.log_start_offset(partition.topic, partition.partition)
            found = [record for record in found if record.offset >= start]
            if name == "aiokafka-compiled":
                found, expected = _without_untyped(found), _without_untyped(expected)
            assert found == expected, (golden.name, partition.dir.name)


def test_golden_sets_read_as_expected_by_librdkafka() -> None:
    held = [(golden, part) for golden in WHOLE_SETS for part in golden.partitions()]
    served = [_served(golden, partition) for golden, partition in held]
    for (golden, partition), found in zip(held, librdkafka_peer.consume(served), strict=True):
        assert found == _expected(golden, partition), (golden.name, partition.dir.name)


def _served(golden: GoldenSet, partition: GoldenPartition) -> Served:
    where = partition.topic, partition.partition
    data = b"".join(segment.read_bytes() for segment in partition.segments)
    return Served(data, golden.log_start_offset(*where), golden.log_end_offset(*where))


def _expected(golden: GoldenSet, partition: GoldenPartition) -> list[PeerRecord]:
    rows = map(decoded, _rows(golden)[partition.topic, partition.partition])
    return [PeerRecord(*(row[name] for name in PeerRecord._fields)) for row in rows]


def _rows(golden: GoldenSet) -> dict[tuple[str, int], list[dict[str, object]]]:
    rows = defaultdict(list)
    for row in golden.expected():
        rows[row["topic"], row["partition"]].append(row)
    return rows


def _without(records: list[PeerRecord], first: int, last: int) -> list[PeerRecord]:
    return [record for record in records if not first <= record.offset <= last]


def _without_untyped(records: list[PeerRecord]) -> list[PeerRecord]:
    """aiokafka's compiled reader has no type for timestamp -1 (magic 1)."""
    return [
        record._replace(timestamp_type=NO_TIMESTAMP_TYPE) if record.timestamp == -1 else record
        for record in records
    ]


# --- limits that the table names -----------------------------------------------------------------


def test_compiled_aiokafka_walks_a_mixed_region_wrong() -> None:
    message = KAFKA_PYTHON.build([corners(1, "none", 0)])[0][1]
    batch = KAFKA_PYTHON.build([corners(2, "none", 10)])[0][1]
    walk = CompiledMemoryRecords(message + batch)
    with pytest.raises((SystemError, CorruptRecordException)):
        [list(entry) for entry in iter(walk.next_batch, None)]


def test_compiled_aiokafka_loses_a_first_timestamp_of_minus_one() -> None:
    records = [
        PeerRecord(i, timestamp, CREATE_TIME, None, b"v") for i, timestamp in ((0, -1), (1, 5))
    ]
    built = aiokafka_peer.build(records, implementation="compiled")
    assert [record.timestamp for record in KAFKA_PYTHON.parse_all([built])[0]] == [5, 5]


def test_librdkafka_writes_now_for_timestamp_zero() -> None:
    record = PeerRecord(0, 0, CREATE_TIME, None, b"v")
    (found,) = KAFKA_PYTHON.parse_all([librdkafka_peer.build([record])])[0]
    assert abs(found.timestamp - time.time() * 1000) < 60_000


def test_librdkafka_says_max_timestamp_zero_for_a_batch_before_1970() -> None:
    record = PeerRecord(0, -5, CREATE_TIME, None, b"v")
    (max_timestamp,) = struct.unpack_from(">q", librdkafka_peer.build([record]), 35)
    assert max_timestamp == 0
    (max_timestamp,) = struct.unpack_from(">q", kafka_python_peer.build([record]), 35)
    assert max_timestamp == -5


def test_librdkafka_cuts_batches_where_it_is_told() -> None:
    records = [PeerRecord(i, 1 + i, CREATE_TIME, None, b"%d" % i) for i in range(25)]
    (batches,) = librdkafka_peer.produce([records], max_records_per_batch=10)
    counts = [struct.unpack_from(">i", batch, 57)[0] for batch in batches]
    assert counts == [10, 10, 5]
    offsets = [0, 10, 20]
    region = b"".join(map(place_at, batches, offsets, counts))
    assert KAFKA_PYTHON.parse_all([region]) == [records] == LIBRDKAFKA.parse_all([region])


# --- the wire peer -------------------------------------------------------------------------------


def test_wire_peer_leaves_no_thread_and_no_file_behind() -> None:
    record = PeerRecord(0, 1, CREATE_TIME, b"k", b"v")
    LIBRDKAFKA.parse_all([librdkafka_peer.build([record])])  # librdkafka's own one-time set-up
    threads, files = threading.active_count(), _open_files()
    for _ in range(3):
        assert LIBRDKAFKA.parse_all([librdkafka_peer.build([record])]) == [[record]]
    assert threading.active_count() == threads
    assert _open_files() <= files


def _open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_consumer_without_an_end_in_sight_gives_up_in_time() -> None:
    batch = KAFKA_PYTHON.build([corners(2, "none", 0)])[0][1]
    started = time.monotonic()
    with pytest.raises(PeerError, match="no end of 1 partition"):
        librdkafka_peer.consume([Served(batch, 0, 1000)], timeout_s=0.5)
    assert time.monotonic() - started < 60


def test_wire_peer_that_fails_tells_the_test() -> None:
    with pytest.raises(RuntimeError, match="wire peer failed"):
        _ask_for_what_was_not_offered()


def _ask_for_what_was_not_offered() -> None:
    produce_v99 = struct.pack(">ihhih", 10, 0, 99, 1, -1)
    with (
        WirePeer() as broker,
        socket.create_connection(("127.0.0.1", broker.port), timeout=5) as client,
    ):
        client.sendall(produce_v99)
        assert client.recv(1) == b""
