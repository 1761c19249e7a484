"""``ls`` called a partition, and its topic, ok when a segment of it could not be read."""

from __future__ import annotations

import os

import pytest

from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment


@pytest.fixture
def refuse(monkeypatch):
    """Files that may not be opened."""
    refused: set[str] = set()
    plain = os.open

    def refusing(path, *rest, **options):
        if path in refused:
            raise PermissionError(13, "Permission denied")
        return plain(path, *rest, **options)

    monkeypatch.setattr(os, "open", refusing)
    return refused.add


def states(tmp_path, by: str) -> list[tuple[object, ...]]:
    done = run("ls", "--by", by, tmp_path)
    assert done.code == 3
    return [tuple(row[name] for name in (by, "records", "status")) for row in done.rows()]


def test_partition_and_topic_with_a_segment_that_was_not_read_are_unread(tmp_path, refuse):
    segment(tmp_path, 0, batch(0))
    refuse(segment(tmp_path, 3, batch(3)))
    segment(tmp_path, 0, batch(0), partition="orders-1")
    segment(tmp_path, 0, batch(0), partition="payments-0")
    assert states(tmp_path, "partition") == [(0, 3, "unread"), (1, 3, "ok"), (0, 3, "ok")]
    assert states(tmp_path, "topic") == [("orders", 6, "unread"), ("payments", 3, "ok")]


def test_topic_with_a_partition_that_was_not_read_is_unread(tmp_path, refuse):
    refuse(segment(tmp_path, 0, batch(0)))
    segment(tmp_path, 0, batch(0), partition="orders-1")
    refuse(segment(tmp_path, 0, batch(0), partition="payments-0"))
    assert states(tmp_path, "partition") == [(1, 3, "ok")]  # nothing was counted, which is not zero
    assert states(tmp_path, "topic") == [("orders", 3, "unread")]


def test_damage_is_worse_and_a_torn_tail_is_not(tmp_path, refuse):
    segment(tmp_path, 0, flipped(batch(0), 16, 6))
    refuse(segment(tmp_path, 3, batch(3)))
    refuse(segment(tmp_path, 0, batch(0), partition="orders-1"))
    segment(tmp_path, 3, batch(3)[:-1], partition="orders-1")
    assert [state for *_, state in states(tmp_path, "partition")] == ["damaged", "unread"]
