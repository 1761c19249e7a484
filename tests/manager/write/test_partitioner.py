"""Keys go where Kafka's own producers send them: known hashes, and librdkafka's choice."""

from __future__ import annotations

from array import array

import pytest

from stratalog.manager.write.partitioner import (
    NO_KEY,
    murmur2,
    partition_of_key,
    partitions_of_keys,
)
from stratalog.records.builder import rows_of_records
from stratalog.records.model import Record

#: The hashes that Kafka's own tests expect, as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: key.decode())
def test_hash_is_kafkas(key):
    assert murmur2(key) == KNOWN[key] % 2**32


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: key.decode())
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 12, 1000, 2**31 - 1])
def test_partition_is_the_hash_without_its_sign(key, partitions):
    # As the producers do it: the sign bit is masked, the number is not negated.
    assert partition_of_key(key, partitions) == (KNOWN[key] & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("partitions", [1, 7, 1000])
def test_rows_go_where_their_keys_do(partitions):
    keys = [*KNOWN, None, b"", *(bytes([n]) for n in range(256))]
    rows = rows_of_records([Record(b"v", key) for key in keys])
    found = array("i", bytes(4 * len(keys)))
    partitions_of_keys(rows, partitions, memoryview(found))
    assert found.tolist() == [
        NO_KEY if key is None else partition_of_key(key, partitions) for key in keys
    ]


def test_every_length_of_the_rest_is_hashed():
    # One to three bytes are left over, with the top bit set: a signed byte would give another hash.
    hashes = {murmur2(bytes([0xFF] * size)) for size in range(16)}
    assert len(hashes) == 16
    assert all(0 <= each < 2**32 for each in hashes)
    assert murmur2(b"") == 275646681  # kafka-python, aiokafka and the Java client agree


def test_other_implementations_agree():
    partitioner = pytest.importorskip("kafka.partitioner.default")
    for size in range(40):
        for fill in (0, 1, 0x7F, 0x80, 0xFE, 0xFF):
            key = bytes((fill + at * 7) & 0xFF for at in range(size))
            assert murmur2(key) == partitioner.murmur2(key) % 2**32, key
