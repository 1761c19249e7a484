"""Kafka's text form of ids, and that a new id is never one that Kafka would not make."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.formats.kafka_uuid import (
    UUID_SIZE,
    format_uuid,
    is_reserved,
    parse_uuid,
    random_uuid,
)

SIXTEEN = bytes.fromhex("00112233445566778899aabbccddeeff")


def test_text_is_that_of_kafka():
    assert format_uuid(SIXTEEN) == "ABEiM0RVZneImaq7zN3u_w"
    assert parse_uuid("ABEiM0RVZneImaq7zN3u_w") == SIXTEEN
    assert parse_uuid("ABEiM0RVZneImaq7zN3u_w==") == SIXTEEN


@given(st.binary(min_size=UUID_SIZE, max_size=UUID_SIZE))
def test_every_id_comes_back(uuid):
    assert parse_uuid(format_uuid(uuid)) == uuid


@given(st.one_of(st.text(max_size=30), st.text("AZaz09-_=+/ \n", min_size=21, max_size=25)))
def test_any_text_is_sixteen_bytes_or_none(text):
    uuid = parse_uuid(text)
    assert uuid is None or (len(uuid) == UUID_SIZE and format_uuid(uuid)[:21] == text[:21])


@pytest.mark.parametrize(
    "text", ["", "ABEiM0RVZneImaq7zN3u", "ABEiM0RVZneImaq7zN3u/w", "ABEiM0RVZneImaq7zN3u_w\n"]
)
def test_what_is_not_base64_of_sixteen_bytes_is_none(text):
    assert parse_uuid(text) is None


def test_new_ids_are_random_version_4_and_usable_as_an_argument():
    ids = {random_uuid() for _ in range(200)}
    assert len(ids) == 200
    for uuid in ids:
        assert uuid[6] >> 4 == 4
        assert uuid[8] >> 6 == 2
        assert not is_reserved(uuid)
        assert not format_uuid(uuid).startswith("-")


def test_new_id_that_would_start_with_a_dash_is_drawn_again():
    dashed = base64.urlsafe_b64decode("-" * 22 + "==")
    draws = iter([dashed, dashed, SIXTEEN])
    uuid = random_uuid(lambda _: next(draws))
    assert uuid[:6] == SIXTEEN[:6]
    assert list(draws) == []


def test_zeros_from_a_broken_source_do_not_give_a_reserved_id():
    assert is_reserved(bytes(UUID_SIZE))
    assert is_reserved(bytes(15) + b"\x63")
    assert not is_reserved(bytes(15) + b"\x64")
    assert not is_reserved(random_uuid(bytes))
