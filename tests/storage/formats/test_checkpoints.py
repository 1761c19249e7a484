"""Checkpoint text: what Kafka wrote is read and written again equal; whatever else is one typed error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError, UsageError
from stratalog.storage.formats.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
)
from stratalog.types import TopicPartition
from tests.judges.peers.golden import GOLDEN_DIR
from tests.scale import SCALE, sized

NAMES = (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
)
GOLDEN = sorted(path for name in NAMES for path in GOLDEN_DIR.rglob(name))
INT64 = st.integers(-(2**63), 2**63 - 1)
PLACES = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t not in (".", "..")),
    st.integers(0, 2**31 - 1),
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_golden_checkpoint_comes_back_byte_for_byte(path):
    """The order is the file's own, so even that is kept. Kafka leaves an unused file empty."""
    data = path.read_bytes()
    offsets = decode_offsets(data)
    if data:
        assert encode_offsets(offsets) == data
    else:
        assert offsets == {}


def test_golden_checkpoints_hold_something():
    assert len(GOLDEN) > 80
    assert sum(len(decode_offsets(path.read_bytes())) for path in GOLDEN) > 100


def test_text_is_that_of_kafka():
    offsets = {TopicPartition("orders", 0): 1047, TopicPartition("a.b_c-1", 12): 0}
    assert encode_offsets(offsets) == b"0\n2\norders 0 1047\na.b_c-1 12 0\n"
    assert encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\r\n0\r\n"])
def test_empty_file_or_version_alone_is_empty(data):
    assert decode_offsets(data) == {}


def test_any_blanks_separate_words():
    assert decode_offsets(b"0\r\n1\r\na \t\x0b 3  \x0c-1 \r\n") == {TopicPartition("a", 3): -1}


@given(st.dictionaries(PLACES, INT64, max_size=20))
def test_every_mapping_comes_back_in_order(offsets):
    decoded = decode_offsets(encode_offsets(offsets))
    assert list(decoded.items()) == list(offsets.items())


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (b"1\n0\n", "checkpoint_version", "line 1"),
        (b"\n", "checkpoint_version", "line 1"),
        (b"\0" * 4096, "checkpoint_version", "line 1"),
        (b" 0\n0\n", "checkpoint_version", "line 1"),
        (b"0\n2\na 0 1\n", "checkpoint_count", "line 2: '2' lines are declared, 1 are present"),
        (b"0\n0\na 0 1\n", "checkpoint_count", "line 2"),
        (b"0\n-1\n", "checkpoint_count", "line 2"),
        (b"0\nx\n", "checkpoint_count", "line 2"),
        (b"0\n99999999999999999999999\n", "checkpoint_count", "line 2"),
        (b"0\n0", "checkpoint_cut_off", "line 2"),
        (b"0\n1\na 0 12", "checkpoint_cut_off", "line 3"),
        (b"0\n2\na 0 1\n\n", "checkpoint_line", "line 4: 0 words, not 3"),
        (b"0\n1\na 0\n", "checkpoint_line", "line 3: 2 words, not 3"),
        (b"0\n1\na b 0 1\n", "checkpoint_line", "line 3: 4 words, not 3"),
        (b"0\n1\na -1 1\n", "checkpoint_line", "line 3: '-1' is not a number from 0"),
        (b"0\n1\na 2147483648 1\n", "checkpoint_line", "line 3"),
        (b"0\n1\na 0 9223372036854775808\n", "checkpoint_line", "line 3"),
        (b"0\n1\na 0 1_0\n", "checkpoint_line", "line 3"),
        (b"0\n1\na 0 \xd9\xa1\n", "checkpoint_line", r"line 3: '\\xd9\\xa1' is not"),
        (b"0\n1\na/b 0 1\n", "checkpoint_line", "line 3: 'a/b' is not a topic"),
        (b"0\n1\n.. 0 1\n", "checkpoint_line", "line 3"),
        (b"0\n1\na\xff 0 1\n", "checkpoint_line", "line 3"),
        (b"0\n2\na 0 1\na 0 2\n", "checkpoint_line", "line 4: a-0 is there a second time"),
    ],
)
def test_wrong_checkpoint_is_named_with_its_line(data, reason, detail):
    with pytest.raises(CorruptionError) as caught:
        decode_offsets(data)
    assert caught.value.reason == reason
    assert caught.value.detail.startswith(detail)


def test_a_long_line_is_not_repeated_whole():
    with pytest.raises(CorruptionError) as caught:
        decode_offsets(b"0\n1\n" + b"x" * 100_000 + b" 0 1\n")
    assert len(str(caught.value)) < 200


def test_every_truncation_is_detected_or_empty():
    data = encode_offsets({TopicPartition("orders", p): 10_000 + p for p in range(12)})
    for size in range(len(data)):
        try:
            assert decode_offsets(data[:size]) == {}
        except CorruptionError:
            continue
        assert size <= len(b"0\n")


@settings(max_examples=sized(100, 300 * SCALE))
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text("0123-_ ab\n\r\t", max_size=60).map(lambda text: f"0\n1\n{text}\n".encode()),
    )
)
def test_any_bytes_are_offsets_or_one_typed_error(data):
    try:
        offsets = decode_offsets(data)
    except CorruptionError:
        return
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (TopicPartition("a b", 0), 0),
        (TopicPartition("a\n", 0), 0),
        (TopicPartition("", 0), 0),
        (TopicPartition("a", -1), 0),
        (TopicPartition("a", 2**31), 0),
        (TopicPartition("a", 0), 2**63),
    ],
)
def test_what_could_not_be_read_again_is_not_written(place, offset):
    with pytest.raises(UsageError):
        encode_offsets({place: offset})
