"""The topics of a directory are listed without opening it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import stratalog
from stratalog.manager.root.topic_file import TopicFile
from stratalog.manager.root.topic_listing import list_topics, topic_configs
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.formats.topic_entries import Deletion


def test_topics_have_their_partitions_and_configs(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with stratalog.open(root) as logs:
        logs.create("orders", 3, {"retention.ms": 60000})
        logs.create("numbers", 1)
        # While another process has the directory locked.
        found = list_topics(str(root), OsFileSystem())
    assert found.partitions == {"orders": {0, 1, 2}, "numbers": {0}}
    assert found.configs["orders"].retention_ms == 60000
    assert topic_configs(str(root), OsFileSystem()) == found.configs


def test_topic_that_is_being_deleted_is_not_listed(tmp_path: Path) -> None:
    """As a process leaves it that dies after the decision, before the folders are renamed."""
    with stratalog.open(tmp_path) as logs:
        logs.create("orders", 2)
        logs.create("numbers", 1)
    files = OsFileSystem()
    file = TopicFile(files, str(tmp_path))
    file.read()
    file.put(replace(file.entries["orders"], deletion=Deletion("a" * 32, ())))
    found = list_topics(str(tmp_path), files)
    assert found.partitions == {"numbers": {0}}
    assert set(found.configs) == set(topic_configs(str(tmp_path), files)) == {"numbers"}


def test_folders_that_are_no_partitions_are_not_listed(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", f"gone-0.{'a' * 32}-delete", "other", "file-0"):
        (tmp_path / name).mkdir() if name != "file-0" else (tmp_path / name).touch()
    assert list_topics(str(tmp_path), OsFileSystem()) == ({"orders": {0, 1}}, {})


def test_directory_that_does_not_exist_has_no_topics(tmp_path: Path) -> None:
    assert list_topics(str(tmp_path / "none"), OsFileSystem()) == ({}, {})
