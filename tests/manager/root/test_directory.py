"""One log directory: what may become one, its lock, its identity, its checkpoints, its marker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError, LockedError, StorageError, UsageError
from stratalog.manager.root.directory import Checkpoint, LogDirectory
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.formats.kafka_uuid import format_uuid, is_reserved
from stratalog.storage.formats.meta_properties import decode_meta_properties
from stratalog.testing import Call, Fault, FaultyFileSystem
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory, tree, values

MARKER = ".kafka_cleanshutdown"
PLACE = TopicPartition("a", 0)


def put(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


# --- what may become one ---------------------------------------------------------------------------


def test_folder_that_is_missing_or_empty_becomes_one(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing", "with-slash/"):
        root = f"{tmp_path}/{name}"
        with stratalog.open(root) as logs:
            assert logs.topics() == {}
        meta = decode_meta_properties(Path(root, "meta.properties").read_bytes())
        assert (meta.version, meta.node_id) == (1, 1)
        assert meta.cluster_id is not None
        assert len(meta.cluster_id) == 22
        assert meta.directory_id is not None
        assert not is_reserved(meta.directory_id)


def test_relative_path_and_path_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with stratalog.open(Path("logs")) as logs:
        logs.create("a")
    assert (tmp_path / "logs" / "a-0").is_dir()
    with stratalog.open("./logs/") as logs:
        assert list(logs.topics()) == ["a"]


def test_files_and_folders_are_nobody_elses_business(tmp_path):
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("a")
        logs.append("a", ["x"])
    for path in (tmp_path / "logs").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["a file", "below a file", "no parent", "other things", "a fifo"])
def test_what_is_no_log_directory_is_refused_and_left_alone(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "a file":
        path.touch()
    elif kind == "below a file":
        path.touch()
        path = path / "logs"
    elif kind == "no parent":
        path = path / "logs"
    elif kind == "a fifo":
        os.mkfifo(path)
    else:
        put(path / "photo.jpg", b"jpg")
        (path / "holidays").mkdir()
    before = tree(tmp_path)
    for read_only in (False, True):
        with pytest.raises((StorageError, UsageError)) as caught:
            stratalog.open(path, read_only=read_only)
        assert str(path) in str(caught.value)
        assert tree(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_without_permission_is_said_to_be_so(tmp_path):
    path = tmp_path / "x"
    path.mkdir(mode=0)
    with pytest.raises(StorageError, match="permission denied"):
        stratalog.open(path)
    path.chmod(0o700)


def test_read_only_makes_nothing(tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        stratalog.open(tmp_path / "missing", read_only=True)
    (tmp_path / "empty").mkdir()
    before = tree(tmp_path)
    with stratalog.open(tmp_path / "empty", read_only=True) as logs:
        assert logs.topics() == {}
        with pytest.raises(UsageError, match="read-only"):
            logs.create("a")
    assert tree(tmp_path) == before


def test_folder_whose_first_opening_was_cut_short_is_still_empty():
    file_system = memory()
    for name in (".lock", "meta.properties.tmp"):
        file_system.open_writable(f"{ROOT}/{name}", create=True).close()
    with open_memory(file_system) as logs:
        logs.create("a")
    assert not any(path.endswith(".tmp") for path in file_system.paths())


# --- what is in it ---------------------------------------------------------------------------------


def test_unknown_files_and_folders_are_left_alone(tmp_path):
    root = tmp_path / "logs"
    with stratalog.open(root) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    strange = [
        root / "notes.txt", root / "lost+found" / "x", root / "a-0.copy" / "x",
        root / "remote-log-index-cache" / "x", root / "__cluster_metadata-0" / "x",
        root / f"a-1.{'0' * 32}-delete" / "x", root / f"a-2.{'1' * 32}-stray" / "x",
        root / "b-00" / "x", root / "b-99999999999" / "x", root / "b-3000000000" / "x",
        root / "-0" / "x", root / "a-" / "x", root / "a-0" / "notes.txt",
    ]  # fmt: skip
    for path in strange:
        put(path, "mine")
    (root / "c-0").symlink_to(root / "a-0")
    with stratalog.open(root) as logs:
        assert list(logs.topics()) == ["a"]
        assert logs.topic("a").partitions == (0,)
        logs.append("a", ["y"])
        logs.flush()
    assert all(path.read_text() == "mine" for path in strange)
    assert (root / "c-0").is_symlink()
    with stratalog.open(root) as logs:
        assert values(logs, "a") == [b"x", b"y"]


@pytest.mark.parametrize(
    "text",
    [b"version=7\n", b"version=1\n", b"version=1\nnode.id=x\ncluster.id=c\n", b"\xff\xfe" * 40],
    ids=["version", "missing", "number", "binary"],
)
def test_meta_properties_that_cannot_be_read_name_themselves(tmp_path, text):
    with stratalog.open(tmp_path / "logs"):
        pass
    path = tmp_path / "logs" / "meta.properties"
    path.write_bytes(text)
    before = tree(tmp_path)
    if text.startswith(b"\xff"):  # nothing in it: version 0, which requires nothing
        with stratalog.open(tmp_path / "logs", read_only=True):
            return
    for read_only in (False, True):
        with pytest.raises(CorruptionError, match="restore it from a backup") as caught:
            stratalog.open(tmp_path / "logs", read_only=read_only)
        assert caught.value.path == str(path)
    assert {k: v for k, v in tree(tmp_path).items() if k != "logs"} == {
        k: v for k, v in before.items() if k != "logs"
    }


def test_meta_properties_of_another_are_kept_byte_for_byte(tmp_path):
    text = b"#\n#Sun Nov 15 20:40:53 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=old-one\n"
    put(tmp_path / "meta.properties", text)
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
    assert (tmp_path / "meta.properties").read_bytes() == text


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_folder_in_the_place_of_a_file_is_one_typed_error(tmp_path, name):
    put(tmp_path / "logs" / "meta.properties", b"version=0\n")
    (tmp_path / "logs" / name).unlink(missing_ok=True)
    (tmp_path / "logs" / name).mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        stratalog.open(tmp_path / "logs")


# --- several ---------------------------------------------------------------------------------------


def test_directories_that_begin_together_belong_together(tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    with stratalog.open(roots):
        pass
    one, two = (decode_meta_properties((root / "meta.properties").read_bytes()) for root in roots)
    # Kafka refuses log.dirs of two clusters, and two with one id.
    assert one.cluster_id == two.cluster_id
    assert one.node_id == two.node_id
    assert one.directory_id != two.directory_id


def test_new_directory_joins_the_cluster_of_the_others(tmp_path):
    put(tmp_path / "a" / "meta.properties", "version=1\nnode.id=5\ncluster.id=theirs\n")
    with stratalog.open([tmp_path / "new", tmp_path / "a"]):
        pass
    meta = decode_meta_properties((tmp_path / "new" / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id) == ("theirs", 5)


@pytest.mark.parametrize(
    ("other", "match"),
    [("node.id=5\ncluster.id=y", "cluster.id is x and y"), ("node.id=6\ncluster.id=x", "node.id")],
)
def test_directories_of_two_owners_are_refused(tmp_path, other, match):
    put(tmp_path / "a" / "meta.properties", "version=1\nnode.id=5\ncluster.id=x\n")
    put(tmp_path / "b" / "meta.properties", f"version=1\n{other}\n")
    put(tmp_path / "a" / MARKER, "")
    with pytest.raises(UsageError, match=match):
        stratalog.open([tmp_path / "a", tmp_path / "b"])
    assert (tmp_path / "a" / MARKER).exists()


def test_what_cannot_be_opened_is_not_begun(tmp_path):
    """An opening that fails at the second directory leaves the first as it was, marker included."""
    for name in ("a", "b"):
        with stratalog.open(tmp_path / name) as logs:
            logs.create("t")
    with stratalog.open(tmp_path / "b"):
        before = tree(tmp_path / "a")
        with pytest.raises(LockedError):
            stratalog.open([tmp_path / "a", tmp_path / "b"])
        assert tree(tmp_path / "a") == before
    before = tree(tmp_path / "a")
    with pytest.raises(UsageError, match="t-0 is in two log directories"):
        stratalog.open([tmp_path / "a", tmp_path / "b"])
    assert tree(tmp_path / "a") == before
    with stratalog.open(tmp_path / "a") as logs:  # and nothing is locked
        assert list(logs.topics()) == ["t"]


def test_same_directory_twice_is_refused(tmp_path):
    with pytest.raises(LockedError, match="already"):
        stratalog.open([tmp_path / "a", tmp_path / "a"])


# --- the lock --------------------------------------------------------------------------------------


def test_second_writer_in_this_process_is_refused(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        with pytest.raises(LockedError, match="this process") as caught:
            stratalog.open(tmp_path)
        assert caught.value.path == str(tmp_path / ".lock")
        logs.append("a", ["still ours"])
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"still ours"]


def open_elsewhere(path: Path, then: str = "") -> subprocess.CompletedProcess[str]:
    program = f"import stratalog\nlogs = stratalog.open({str(path)!r})\n{then}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


def test_second_writer_in_another_process_is_refused(tmp_path):
    with stratalog.open(tmp_path):
        done = open_elsewhere(tmp_path)
        assert done.returncode == 1
        assert "LockedError" in done.stderr
        # A reader in between, here or there, does not let go of the lock.
        stratalog.open(tmp_path, read_only=True).close()
        assert "LockedError" in open_elsewhere(tmp_path).stderr
    assert open_elsewhere(tmp_path, "logs.close()").returncode == 0


def test_lock_of_a_dead_process_is_no_obstacle(tmp_path):
    dies = "import os\nlogs.create('a')\nlogs.append('a', ['x'])\nos._exit(9)"
    assert open_elsewhere(tmp_path, dies).returncode == 9
    assert (tmp_path / ".lock").exists()
    assert not (tmp_path / MARKER).exists()
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x"]


def test_lock_is_let_go_when_opening_fails(tmp_path):
    put(tmp_path / "meta.properties", "version=9\n")
    for _ in range(2):  # not LockedError the second time
        with pytest.raises(CorruptionError):
            stratalog.open(tmp_path)


# --- the marker ------------------------------------------------------------------------------------


def test_marker_is_removed_before_a_log_is_opened_and_written_last(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        assert not (tmp_path / MARKER).exists()
    assert (tmp_path / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    logs = stratalog.open(tmp_path)
    assert not (tmp_path / MARKER).exists()
    logs.close()
    assert (tmp_path / MARKER).exists()


def test_marker_that_another_writer_leaves_until_the_lock_is_ours_counts():
    """Between our first look and the lock an orderly stop may come to its end: its marker is there then,
    and must not outlive our own writing."""

    class Stopping(FaultyFileSystem):
        def lock(self, path: str):
            self.inner.open_writable(f"{ROOT}/{MARKER}", create=True).close()
            return super().lock(path)

    file_system = memory()
    logs = open_memory(Stopping(file_system))
    assert f"{ROOT}/{MARKER}" not in file_system.paths()
    logs.close()


def test_new_directory_is_clean_also_where_partitions_were_never_used(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 3)
        logs.append("a", ["x"], partition=1)
    assert (tmp_path / MARKER).exists()


def test_directory_that_was_not_left_in_order_becomes_so_when_all_of_it_was_loaded(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", ["x"], partition=0)
        logs.append("a", ["y"], partition=1)
    (tmp_path / MARKER).unlink()
    with stratalog.open(tmp_path) as logs:
        logs.append("a", ["z"], partition=0)
    assert not (tmp_path / MARKER).exists()  # partition 1 was never looked at
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x", b"z", b"y"]
    assert (tmp_path / MARKER).exists()


def test_clean_stop_skips_recovery_and_an_unclean_one_does_not(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    with stratalog.open(tmp_path) as logs:
        assert logs.partition("a").report.recovered_segments == []
    (tmp_path / MARKER).unlink()
    with stratalog.open(tmp_path) as logs:
        assert logs.partition("a").report.recovered_segments == [0]


@pytest.mark.parametrize("call", [Call.SYNC, Call.WRITE])
def test_marker_is_not_written_where_a_log_failed(call):
    file_system = memory("/logs", "/other")
    faulty = FaultyFileSystem(file_system)
    logs = open_memory(faulty, "/logs", "/other")
    logs.create("a", 2)
    logs.append("a", ["x"], partition=0)
    logs.append("a", ["x"], partition=1)
    faulty.arm(1, fault=Fault.EIO, calls=[call])
    with pytest.raises(StorageError):
        logs.append("a", ["y"], partition=0)
    faulty.heal()
    points = file_system.paths()
    with pytest.raises(StorageError):  # LogFailedError
        logs.append("a", ["z"], partition=0)
    logs.append("a", ["z"], partition=1)  # the others go on
    logs.close()
    paths = file_system.paths()
    assert f"/logs/{MARKER}" not in paths
    assert f"/other/{MARKER}" in paths
    assert "/logs/recovery-point-offset-checkpoint" not in set(paths) - set(points)
    with open_memory(file_system, "/logs", "/other") as logs:
        assert values(logs, "a", 0)[0] == b"x"
        assert values(logs, "a", 1) == [b"x", b"z"]


# --- the checkpoints -------------------------------------------------------------------------------


def test_checkpoint_is_read_and_replaced_as_a_whole(tmp_path):
    path = tmp_path / "c"
    path.write_bytes(b"0\n2\nb 0 5\na 0 -3\n")
    checkpoint = Checkpoint(OsFileSystem(), str(tmp_path), "c")
    assert checkpoint.offsets == {TopicPartition("b", 0): 5, PLACE: -3}
    assert (checkpoint.of(PLACE), checkpoint.of(TopicPartition("c", 0))) == (0, 0)
    before = path.stat().st_ino
    checkpoint.write(checkpoint.offsets)
    assert path.stat().st_ino == before  # it says so already
    checkpoint.write({PLACE: 7})
    assert path.read_bytes() == b"0\n1\na 0 7\n"
    assert [each.name for each in tmp_path.iterdir()] == ["c"]
    path.write_bytes(b"0\n1\na 0 9\n")
    checkpoint.read()
    assert checkpoint.of(PLACE) == 9


def test_checkpoint_that_failed_to_be_written_is_written_again():
    file_system = memory()
    faulty = FaultyFileSystem(file_system)
    checkpoint = Checkpoint(faulty, ROOT, "c")
    faulty.arm(1, fault=Fault.EIO, calls=[Call.SYNC_DIR])
    with pytest.raises(StorageError):
        checkpoint.write({PLACE: 7})
    faulty.heal()
    checkpoint.write({PLACE: 7})
    assert file_system.read_bytes(f"{ROOT}/c") == b"0\n1\na 0 7\n"


@pytest.mark.parametrize(
    "text", [b"1\n0\n", b"0\n5\na 0 1\n", b"0\n1\na 0 x\n", b"0\n1\na 0 1", b"\0" * 100]
)
def test_damaged_checkpoint_is_said_and_gone_on_without(tmp_path, text):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", ["x", "y"], partition=0)
        logs.append("a", ["x"], partition=1)
        assert logs.damage == ()
    (tmp_path / MARKER).unlink()
    for name in (
        "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):  # fmt: skip
        (tmp_path / name).write_bytes(text)
    with stratalog.open(tmp_path) as logs:
        assert len(logs.damage) == 3
        assert all(str(tmp_path) in str(each) for each in logs.damage)
        assert values(logs, "a") == [b"x", b"y", b"x"]
    with stratalog.open(tmp_path) as logs:
        assert logs.damage == ()
    points = decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {PLACE: 2, TopicPartition("a", 1): 1}


@pytest.mark.parametrize("offset", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_recovery_point_that_cannot_be_is_no_trouble(tmp_path, offset):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x", "y"])
    (tmp_path / MARKER).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\na 0 {offset}\n")
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x", b"y"]


def test_directory_id_is_told(tmp_path):
    with stratalog.open(tmp_path):
        pass
    directory = LogDirectory(str(tmp_path), OsFileSystem(), read_only=True)
    assert directory.directory_id is not None
    assert format_uuid(directory.directory_id) in (tmp_path / "meta.properties").read_text()
