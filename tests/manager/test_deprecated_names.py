"""Names that were public before they were renamed: they still work, with a warning that names the new one."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.storage.commits.records import CommittedSpan
from stratalog.types import TopicPartition


def test_places_are_topic_partitions_with_a_warning(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        with pytest.warns(DeprecationWarning, match=r"use Logs\.topic_partitions") as seen:
            assert logs.places("a", None) == logs.topic_partitions("a", None)
        assert seen[0].filename == __file__
        assert logs.topic_partitions("a", 1) == [TopicPartition("a", 1)]


def test_place_of_a_committed_span_is_its_topic_partition_with_a_warning():
    span = CommittedSpan(TopicPartition("a", 0), 0, 9, 10, 0)
    with pytest.warns(DeprecationWarning, match="use topic_partition"):
        assert span.place == span.topic_partition
