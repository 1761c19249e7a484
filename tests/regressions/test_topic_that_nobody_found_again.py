"""A topic ``__cluster_metadata`` could be made: its folder is Kafka's own, and was passed over when the
directory was listed. What was acknowledged there was seen by nobody."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import UsageError
from tests.cli.runner import run


def test_topic_whose_folder_is_kafkas_cannot_be_made(tmp_path):
    with stratalog.open(tmp_path) as logs:
        with pytest.raises(UsageError, match="__cluster_metadata-0"):
            logs.create("__cluster_metadata")
        assert logs.topics() == {}
        logs.create("__cluster_metadata-0")  # its folder ends with another -0
        logs.create("remote-log-index-cache")
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert list(logs.topics()) == ["__cluster_metadata-0", "remote-log-index-cache"]


def test_produce_refuses_it_and_makes_nothing(tmp_path):
    done = run("produce", tmp_path / "logs", "-t", "__cluster_metadata", stdin="a\n")
    assert (done.code, "__cluster_metadata-0" in done.err) == (2, True)
    assert not (tmp_path / "logs").exists()
