"""From paths to partitions and segments: what a folder is, what is left out, what is told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StorageError, UnknownPartitionError, UsageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import Sources, find_sources, relisted, vanished
from stratalog.manager.root.topic_file import TopicFile
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.formats.kafka_uuid import format_uuid
from stratalog.storage.formats.topic_entries import Deletion
from tests.inspect.logs import batch, segment
from tests.judges.peers.golden import golden_sets

SETS = golden_sets()
ASIDE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory: two partitions of one topic, one of another."""
    root = tmp_path / "kafka-logs-1"  # could be a partition's, by its name
    root.mkdir()
    (root / "meta.properties").touch()
    for base in (0, 9, 3):
        segment(root, base, batch(base), partition="orders-0")
    segment(root, 0, batch(0), partition="orders-10")
    segment(root, 0, batch(0), partition="orders-2")
    segment(root, 0, batch(0), partition="mails.v-1-0")
    return root


def names(sources: Sources) -> list[str]:
    return [source.name for source in sources.partitions]


def test_a_log_directory_gives_its_partitions_by_topic_and_number(root):
    sources = find_sources(root)
    assert names(sources) == ["mails.v-1-0", "orders-0", "orders-2", "orders-10"]
    _, first, *_ = sources.partitions
    assert [Path(path).name for path in first.segments] == [f"{base:020}.log" for base in (0, 3, 9)]
    assert all(path.startswith(str(root)) for path in sources.files)
    assert (sources.notes, sources.warnings, sources.has_folders) == ((), (), True)


def test_a_partitions_folder_is_told_by_what_it_holds(root, tmp_path):
    assert names(find_sources(root / "orders-0")) == ["orders-0"]
    assert names(find_sources(f"{root / 'orders-0'}{os.sep}")) == ["orders-0"]
    copied = tmp_path / "copied"
    (root / "orders-2").rename(copied)
    (source,) = find_sources(copied).partitions
    assert (source.topic_partition, len(source.segments)) == (None, 1)
    empty = tmp_path / "empty-3"
    empty.mkdir()
    (source,) = find_sources(empty).partitions
    assert (str(source.topic_partition), source.segments) == ("empty-3", ())


def test_the_folder_that_one_stands_in_has_a_name_too(root, monkeypatch):
    monkeypatch.chdir(root / "orders-0")
    assert names(find_sources(".")) == ["orders-0"]
    assert names(find_sources("00000000000000000003.log")) == ["orders-0"]
    monkeypatch.chdir(root)
    assert len(find_sources(".").partitions) == 4


def test_files_come_first_and_in_the_order_named_but_by_offset_in_a_folder(root):
    late, early = (root / "orders-0" / f"{base:020}.log" for base in (9, 0))
    other = root / "orders-2" / f"{0:020}.log"
    plain = root / "notes.log"
    sources = find_sources([late, other, early, late, plain])
    assert [source.segments for source in sources.partitions] == [
        (str(early), str(late)),
        (str(other),),
        (str(plain),),
    ]
    assert not sources.has_folders
    mixed = find_sources([root / "mails.v-1-0", late])
    assert names(mixed) == ["orders-0", "mails.v-1-0"]
    assert [source.is_listed for source in mixed.partitions] == [False, True]


def test_what_is_named_twice_is_read_once(root):
    folder = root / "orders-0"
    for paths in ([folder, folder], [root, folder], [folder, root, next(folder.iterdir())]):
        sources = find_sources(paths, partition_filter("orders", 0))
        assert names(sources) == ["orders-0"]
        assert len(sources.files) == 3


def test_one_partition_in_two_folders_is_refused(root, tmp_path):
    other = tmp_path / "data-b"
    other.mkdir()
    segment(other, 0, batch(0), partition="orders-2")
    with pytest.raises(UsageError, match=r"orders-2 is in .* and in .*"):
        find_sources([root, other])
    with pytest.raises(UsageError, match="orders-2 is in"):
        find_sources([root, other / "orders-2" / f"{0:020}.log"])
    assert len(find_sources([root, other], partition_filter("orders", "0,10")).partitions) == 2
    files = [each / "orders-2" / f"{0:020}.log" for each in (root, other)]
    assert names(find_sources(files)) == [
        "orders-2",
        "orders-2",
    ]  # who names files may compare them


def test_two_log_directories_are_one_broker(root, tmp_path):
    other = tmp_path / "data-b"
    other.mkdir()
    segment(other, 0, batch(0), partition="orders-1")
    assert names(find_sources([other, root])) == [
        "mails.v-1-0", "orders-0", "orders-1", "orders-2", "orders-10",
    ]  # fmt: skip


def test_what_kafka_set_aside_is_left_out_unless_named(root):
    for kind in ("delete", "future", "stray"):
        segment(root, 0, batch(0), partition=f"gone-0.{ASIDE}-{kind}")
    sources = find_sources(root)
    assert "gone-0" not in names(sources)
    assert len(sources.notes) == 1
    assert f"gone-0.{ASIDE}-stray" in sources.notes[0]
    with pytest.raises(UnknownPartitionError):
        find_sources(root, partition_filter("gone"))
    aside = root / f"gone-0.{ASIDE}-stray"
    assert names(find_sources(aside)) == ["gone-0"]


def test_the_clusters_metadata_is_left_out_unless_named(root):
    segment(root, 0, batch(0), partition="__cluster_metadata-0")
    (root / "__cluster_metadata-0" / "quorum-state").touch()
    (root / "remote-log-index-cache").mkdir()
    sources = find_sources(root)
    assert "__cluster_metadata-0" not in names(sources)
    assert sources.notes == ()
    assert "__cluster_metadata-0" not in names(find_sources(root, partition_filter("*")))
    for named in (
        find_sources(root, partition_filter("__cluster_metadata")),
        find_sources(root / "__cluster_metadata-0"),
    ):
        assert (names(named), named.notes) == (["__cluster_metadata-0"], ())


def test_what_is_not_known_is_told_and_left_alone(root):
    (root / "orders-0" / "notes.txt").touch()
    (root / "orders-0" / "00000000000000000003.log.swap").touch()
    (root / "orders-0" / "00000000000000000003.log.deleted").touch()
    (root / "orders-0" / "00000000000000000003.index").touch()
    (root / "orders-0" / "leader-epoch-checkpoint.tmp").touch()
    (root / "orders-0" / "inner").mkdir()
    (root / "lost+found").mkdir()
    (root / "replication-offset-checkpoint.tmp").touch()
    (root / "bootstrap.checkpoint").touch()
    of_root, swap, of_partition = find_sources(root).notes
    assert of_root == f"{root}: unknown files, ignored: lost+found"
    assert swap.startswith(f"{root}/orders-0: a replacement of segments was interrupted, ")
    assert swap.endswith(": 00000000000000000003.log.swap")
    assert of_partition == f"{root}/orders-0: unknown files, ignored: inner, notes.txt"
    assert len(find_sources(root).files) == 6


def test_links_inside_folders_are_not_followed(root, tmp_path):
    target = tmp_path / "far-0"
    (root / "orders-2").rename(target)
    (root / "orders-2").symlink_to(target)
    (root / "orders-10" / f"{5:020}.log").symlink_to(target / f"{0:020}.log")
    sources = find_sources(root)
    assert names(sources) == ["mails.v-1-0", "orders-0", "orders-10"]
    assert len(sources.partitions[2].segments) == 1
    assert [note.rpartition(": ")[2] for note in sources.notes] == ["orders-2", f"{5:020}.log"]
    assert names(find_sources(root / "orders-2")) == ["orders-2"]  # this one was named


def test_a_folder_that_is_neither_is_a_storage_error(tmp_path):
    (tmp_path / "somewhere").mkdir()
    with pytest.raises(StorageError, match="not a log directory or partition folder"):
        find_sources(tmp_path)
    (tmp_path / "meta.properties").touch()
    assert find_sources(tmp_path).partitions == ()
    with pytest.raises(UsageError, match="no file"):
        find_sources([])


def test_a_missing_path_is_left_to_whoever_opens_it(tmp_path):
    (source,) = find_sources(tmp_path / "orders-0" / "missing.log").partitions
    assert source.segments == (str(tmp_path / "orders-0" / "missing.log"),)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0\n1\norders 0 4\n", 4),
        ("0\n2\nmails.v-1 0 9\norders 0 4\n", 4),
        ("0\n1\norders 0 -7\n", 0),
        ("0\n0\n", 0),
        ("", 0),
    ],
)
def test_the_log_start_comes_from_the_checkpoint_of_the_log_directory(root, text, start):
    (root / "log-start-offset-checkpoint").write_text(text)
    for path in (root, root / "orders-0"):
        (source,) = find_sources(path, partition_filter("orders", 0)).partitions
        assert source.log_start == start
    (source,) = find_sources(root / "orders-0" / f"{0:020}.log").partitions
    assert source.log_start == 0  # a file that is named is read as it is


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n5\n", b"0\n1\norders 0\n", b"\xff\x00", b"0\n1\no 0 1"]
)
def test_a_damaged_checkpoint_is_a_warning_and_counts_as_empty(root, data):
    (root / "log-start-offset-checkpoint").write_bytes(data)
    sources = find_sources(root)
    assert {source.log_start for source in sources.partitions} == {0}
    assert len(sources.warnings) == 1
    assert str(root / "log-start-offset-checkpoint") in sources.warnings[0]


def test_the_checkpoint_is_not_for_what_was_set_aside(root):
    segment(root, 0, batch(0), partition=f"orders-5.{ASIDE}-future")
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 5 4\n")
    (source,) = find_sources(root / f"orders-5.{ASIDE}-future").partitions
    assert source.log_start == 0


def test_a_listing_is_made_anew(root):
    (source,) = find_sources(root / "orders-0").partitions
    Path(source.segments[0]).unlink()
    segment(root, 12, batch(12), partition="orders-0")
    assert [Path(path).stem for path in relisted(source).segments] == [
        f"{base:020}" for base in (3, 9, 12)
    ]
    gone = StorageError("no such file", path=source.segments[0], errno=2)
    assert vanished(source, gone)
    (named,) = find_sources(source.segments[1]).partitions
    assert not vanished(named, gone)
    for path in relisted(source).segments:
        Path(path).unlink()
    (root / "orders-0").rmdir()
    assert relisted(source).segments == ()


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_golden_sets_are_log_directories(golden):
    sources = find_sources(golden.log_dirs)
    assert [(source.topic_partition, source.segments) for source in sources.partitions] == [
        ((p.topic, p.partition), tuple(map(str, p.segments))) for p in golden.partitions()
    ]
    for source in sources.partitions:
        assert source.topic_partition is not None
        start = golden.log_start_offset(*source.topic_partition)
        assert max(source.log_start, int(Path(source.segments[0]).stem)) == start


# --- topics that are being deleted -----------------------------------------------------------------


def marked_topic(tmp_path: Path, roots: Sequence[str]) -> list[Path]:
    """Two directories with topics ``t`` and ``u``, as a process leaves them that died while it deleted ``t``,
    when some of the directories were marked."""
    paths = [tmp_path / "a", tmp_path / "b"]
    with stratalog.open(paths) as logs:
        for topic in ("t", "u"):
            logs.create(topic, 2)
            for partition in range(2):
                logs.append(topic, ["x"], partition=partition)
        ids = [format_uuid(each.directory_id or b"") for each in logs._directories]
    for name in roots:
        file = TopicFile(OsFileSystem(), str(tmp_path / name))
        file.read()
        deletion = Deletion("0123456789abcdef" * 2, tuple(ids))
        file.put(replace(file.entries["t"], deletion=deletion))
    return paths


def test_topic_whose_deletion_is_decided_is_left_out_and_noted(tmp_path):
    paths = marked_topic(tmp_path, ["a", "b"])
    found = find_sources(paths)
    assert [source.name for source in found.partitions] == ["u-0", "u-1"]
    assert [note for note in found.notes if "deleted topics" in note] == [
        f"{path}: deleted topics, whose folders the next opening for writing removes, read only if named: t"
        for path in paths
    ]
    with pytest.raises(UnknownPartitionError):
        find_sources(paths, partition_filter(topics=["t"]))
    named = find_sources([*paths, paths[0] / "t-0"])
    assert [source.name for source in named.partitions] == ["t-0", "u-0", "u-1"]
    with stratalog.open(paths, read_only=True) as logs:
        assert list(logs.topics()) == ["u"]


@pytest.mark.parametrize("marked", ["a", "b"])
def test_topic_whose_deletion_is_not_decided_is_kept(tmp_path, marked):
    paths = marked_topic(tmp_path, [marked])
    found = find_sources(paths)
    assert [source.name for source in found.partitions] == ["t-0", "t-1", "u-0", "u-1"]
    assert found.notes == ()
    with stratalog.open(paths, read_only=True) as logs:
        assert list(logs.topics()) == ["t", "u"]
