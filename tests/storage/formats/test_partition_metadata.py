"""``partition.metadata``: byte for byte Kafka's; a topic's id is read from it or one error is raised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import CorruptionError
from stratalog.storage.formats.kafka_uuid import format_uuid
from stratalog.storage.formats.partition_metadata import (
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
    new_topic_id,
)
from stratalog.storage.names import PARTITION_METADATA
from tests.judges.peers.golden import GOLDEN_DIR

GOLDEN = sorted(GOLDEN_DIR.rglob(PARTITION_METADATA))
SIXTEEN = bytes.fromhex("00112233445566778899aabbccddeeff")
WHOLE = b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_golden_file_comes_back_byte_for_byte(path):
    data = path.read_bytes()
    found = decode_partition_metadata(data)
    assert found.version == 0
    assert encode_partition_metadata(found.topic_id) == data


def test_golden_files_are_many_and_partitions_of_a_topic_share_their_id():
    assert len(GOLDEN) > 40
    ids = {
        decode_partition_metadata(path.read_bytes()).topic_id
        for path in (GOLDEN_DIR / "v2-internal-topics").rglob("clicks-*/partition.metadata")
    }
    assert len(ids) == 1


def test_text_has_no_end_of_line_behind_it():
    assert encode_partition_metadata(SIXTEEN) == WHOLE
    assert decode_partition_metadata(WHOLE) == PartitionMetadata(0, SIXTEEN)


@pytest.mark.parametrize(
    "data",
    [
        WHOLE + b"\n",
        WHOLE.replace(b"\n", b"\r\n"),
        WHOLE.replace(b": ", b":\t "),
        WHOLE.replace(b"_w", b"_w=="),
        WHOLE + b"\nsomething: new",
    ],
)
def test_harmless_differences_are_read(data):
    assert decode_partition_metadata(data) == PartitionMetadata(0, SIXTEEN)


def test_later_version_is_read():
    assert decode_partition_metadata(WHOLE.replace(b" 0", b" 7")).version == 7


def test_id_of_the_metadata_topic_is_read():
    data = WHOLE.replace(b"ABEiM0RVZneImaq7zN3u_w", b"AAAAAAAAAAAAAAAAAAAAAQ")
    assert decode_partition_metadata(data).topic_id == bytes(15) + b"\x01"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"\0" * 43,
        WHOLE.replace(b" 0", b" -1"),
        WHOLE.replace(b" 0", b" 2147483648"),
        WHOLE.replace(b" 0", b" x"),
        WHOLE.replace(b" 0", b""),
        WHOLE.replace(b" 0", b" 0 0"),
        WHOLE.replace(b"version:", b"topic_id:"),
        WHOLE.replace(b"topic_id:", b"topicid:"),
        WHOLE[:-1],
        WHOLE.replace(b"ABEiM0RVZneImaq7zN3u_w", b"A" * 22),
        WHOLE.replace(b"_w", b"\xff\xfe"),
    ],
)
def test_wrong_file_is_an_error(data):
    with pytest.raises(CorruptionError) as caught:
        decode_partition_metadata(data)
    assert caught.value.reason == "partition_metadata"


def test_every_truncation_is_detected():
    for size in range(len(WHOLE)):
        with pytest.raises(CorruptionError):
            decode_partition_metadata(WHOLE[:size])


@given(
    st.one_of(st.binary(max_size=60), st.binary(max_size=30).map(lambda tail: WHOLE[:20] + tail))
)
def test_any_bytes_are_an_id_or_one_typed_error(data):
    try:
        found = decode_partition_metadata(data)
    except CorruptionError:
        return
    assert len(found.topic_id) == 16


def test_new_topic_ids_differ():
    assert len({format_uuid(new_topic_id()) for _ in range(50)}) == 50
