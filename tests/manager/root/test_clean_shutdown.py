"""``.kafka_cleanshutdown``: written as Kafka does; whatever is in it, reading never fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.formats.clean_shutdown import decode_clean_shutdown, encode_clean_shutdown
from stratalog.storage.names import CLEAN_SHUTDOWN
from tests.judges.peers.golden import GOLDEN_DIR

GOLDEN = sorted(path for path in GOLDEN_DIR.rglob(CLEAN_SHUTDOWN) if path.stat().st_size)


def test_golden_files_are_there():
    assert len(GOLDEN) > 10


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_golden_file_comes_back_byte_for_byte(path):
    data = path.read_bytes()
    broker_epoch = decode_clean_shutdown(data)
    assert broker_epoch > 0
    assert encode_clean_shutdown(broker_epoch) == data


def test_text_without_a_broker():
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert decode_clean_shutdown(encode_clean_shutdown()) == -1


def test_unknown_fields_and_versions_are_passed_over():
    assert decode_clean_shutdown(b'{"version": 3, "brokerEpoch": 42, "more": [1]}') == 42


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"null",
        b"[1]",
        b"{}",
        b'{"brokerEpoch":',
        b'{"brokerEpoch":"5"}',
        b'{"brokerEpoch":5.0}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":-7}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":' + b"9" * 4000 + b"}",
        b"\xff\xfe\xff",
        b"[" * 4096,
        b'{"brokerEpoch":5' + b" " * 5000 + b"}",
    ],
)
def test_unreadable_text_tells_no_epoch(data):
    assert decode_clean_shutdown(data) == -1


@given(st.binary(max_size=80))
def test_any_bytes_are_an_epoch_or_none(data):
    assert decode_clean_shutdown(data) >= -1
