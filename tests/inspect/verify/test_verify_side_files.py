"""``verify`` checks every file, not only data files: each kind damaged, found, and named with its remedy."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

import stratalog
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.storage.commits.records import Begin, encode_line
from tests.cli.runner import run
from tests.inspect.logs import batch, flipped
from tests.judges.peers.golden import golden_set


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """Two partitions with transactions, an aborted one in the first segment, and several segments."""
    root = tmp_path_factory.mktemp("closed") / "logs"
    with stratalog.open(str(root)) as logs:
        logs.create("orders", 2, {"internal.segment.bytes": 6000, "index.interval.bytes": 500})
        for number in range(10):
            for partition in (0, 1):
                logs.append("orders", [bytes(200)] * 4, partition=partition)
            transaction = logs.transaction()
            transaction.append("orders", [bytes(100)] * 3, partition=0)
            transaction.abort() if number % 3 == 0 else transaction.commit()
    return root


@pytest.fixture
def root(closed, tmp_path):
    return Path(shutil.copytree(closed, tmp_path / "logs"))


def first(root, suffix):
    return min(path for path in (root / "orders-0").glob(f"*{suffix}") if path.stat().st_size)


def change(path, at, bit=0):
    path.write_bytes(flipped(path.read_bytes(), at % path.stat().st_size, bit))


def bad_rows(done):
    return [row for row in done.rows() if row["status"] != "ok"]


def assert_found(done, path, reason=None):
    assert done.code == 1
    (row,) = bad_rows(done)
    assert (row["path"], row["status"]) == (str(path), "damaged")
    assert row["findings"][0]["advice"]
    if reason is not None:
        assert row["findings"][0]["reason"] == reason
    assert "Traceback" not in done.err


def test_every_file_has_a_row_and_is_ok(root):
    done = run("verify", root)
    assert (done.code, bad_rows(done)) == (0, [])
    checked = {row["path"] for row in done.rows()}
    files = {str(path) for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
    assert files == checked
    assert {row["kind"] for row in done.rows()} >= {
        "log", "index", "timeindex", "txnindex", "snapshot", "leader_epochs", "partition_metadata",
        "checkpoint", "meta_properties", "clean_shutdown", "topics", "transactions",
    }  # fmt: skip
    counts = {row["records"] is None for row in done.rows() if row["kind"] != "log"}
    assert counts == {True}


@pytest.mark.parametrize(("at", "bit"), [(3, 5), (2, 0), (7, 1), (6, 1)])
def test_offset_index_with_a_wrong_entry(root, at, bit):
    path = first(root, ".index")
    change(path, at, bit)
    assert_found(run("verify", root), path)


def test_offset_index_of_another_segment(root):
    one, other, *_ = sorted((root / "orders-0").glob("*.index"))
    one.write_bytes(other.read_bytes()[4:] + b"\0\0\0\1")
    assert_found(run("verify", root), one)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_index_with_part_of_an_entry(root, suffix):
    path = first(root, suffix)
    path.write_bytes(path.read_bytes()[:-3])
    assert_found(run("verify", root), path)


def test_index_beyond_a_log_that_has_everything(root):
    path = first(root, ".index")
    path.write_bytes(path.read_bytes() + struct.pack(">ii", 10**6, 10**7))
    assert_found(run("verify", root), path, "index_beyond_log")


@pytest.mark.parametrize("at", [0, 5, 7])
def test_time_index_with_a_wrong_time(root, at):
    path = first(root, ".timeindex")
    change(path, at - 12 if at else at, 6)
    assert_found(run("verify", root), path)


def test_zeros_of_an_active_segment_are_damage_after_an_orderly_stop_only(root):
    path = max((root / "orders-0").glob("*.index"))
    path.write_bytes(path.read_bytes() + bytes(800))
    assert_found(run("verify", root), path, "index_zeros")
    (root / ".kafka_cleanshutdown").unlink()
    assert run("verify", root).code == 0
    sealed = min((root / "orders-0").glob("*.index"))
    sealed.write_bytes(sealed.read_bytes() + bytes(800))
    assert_found(run("verify", root), sealed, "index_zeros")


@pytest.mark.parametrize("at", [9, 25, 27])
def test_txn_index_with_a_wrong_entry(root, at):
    path = first(root, ".txnindex")
    change(path, at, 2)
    assert_found(run("verify", root), path)


def test_txn_index_that_lost_an_entry_or_is_gone(root):
    path = first(root, ".txnindex")
    path.write_bytes(path.read_bytes()[:-34])
    assert_found(run("verify", root), path, "txn_index_missing")
    path.unlink()
    done = run("verify", root)
    assert [f["reason"] for row in bad_rows(done) for f in row["findings"]] == ["txn_index_missing"]
    assert bad_rows(done)[0]["path"] == str(path.with_suffix(".log"))


def test_abort_of_an_empty_transaction_needs_no_entry():
    """The golden set has aborts of which nothing is in an index, and is ok."""
    done = run("verify", golden_set("v2-internal-topics").path)
    assert (done.code, bad_rows(done)) == (0, [])


@pytest.mark.parametrize("at", [0, 4, 12, -1])
def test_snapshot_with_a_flipped_bit(root, at):
    path = max((root / "orders-0").glob("*.snapshot"))
    change(path, at)
    assert_found(run("verify", root), path)


def test_snapshot_of_a_later_offset(root):
    *_, one, newest = sorted((root / "orders-0").glob("*.snapshot"))
    shutil.copy(newest, one)
    assert_found(run("verify", root), one, "snapshot_content")


@pytest.mark.parametrize(
    "text", ["0\n1\n0 zero\n", "0\n5\n0 0\n", "1\n1\n0 0\n", "garbage", "0\n1\n7 0\n", "\0\0\0"]
)
def test_leader_epoch_checkpoint(root, text):
    path = root / "orders-0" / "leader-epoch-checkpoint"
    path.write_text(text)
    assert_found(run("verify", root), path)


def test_leader_epochs_must_be_those_of_the_batches(tmp_path):
    copy = Path(shutil.copytree(golden_set("v2-leader-epochs").path, tmp_path / "logs"))
    path = copy / "Accounts_island-0" / "leader-epoch-checkpoint"
    sound = path.read_text()
    lines = sound.splitlines()
    for number in range(3, len(lines)):
        epoch, start = map(int, lines[number].split())
        for changed in (f"{epoch} {start + 1}", f"{epoch} {start - 1}", f"{epoch + 1} {start}"):
            path.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :]]) + "\n")
            assert_found(run("verify", copy), path, "leader_epoch")
    path.write_text(sound)
    assert run("verify", copy).code == 0


@pytest.mark.parametrize(
    "text", ["", "version: 0", "version: x\ntopic_id: a", "version: 0\ntopic_id: " + "A" * 22]
)
def test_partition_metadata(root, text):
    path = root / "orders-1" / "partition.metadata"
    path.write_text(text)
    assert_found(run("verify", root), path, "partition_metadata")


def test_partitions_of_one_topic_have_one_id(root):
    path = root / "orders-1" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w")
    assert_found(run("verify", root), path, "topic_id")


@pytest.mark.parametrize(
    "text",
    ["version=7\n", "version=1\nnode.id=1\n", "version=1\nnode.id=x\ncluster.id=c\n", "\\u12"],
)
def test_meta_properties(root, text):
    path = root / "meta.properties"
    path.write_text(text)
    assert_found(run("verify", root), path, "meta_properties")


def test_directories_of_two_brokers(root, tmp_path):
    other = tmp_path / "other"
    stratalog.open(str(other)).close()
    done = run("verify", root, other)
    assert_found(done, other / "meta.properties", "meta_properties")
    assert "cluster.id" in bad_rows(done)[0]["findings"][0]["detail"]


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
        "log-start-offset-checkpoint", "cleaner-offset-checkpoint",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["0\n2\norders 0 1\n", "0\n1\norders zero 1\n", "\0" * 20])
def test_offset_checkpoints(root, name, text):
    path = root / name
    path.write_text(text)
    assert_found(run("verify", root), path)


@pytest.mark.parametrize("name", ["stratalog-topics.json", "stratalog-transactions.json"])
def test_files_of_our_own(root, name):
    (root / name).write_text('{"version": 9}')
    assert_found(run("verify", root), root / name)


def test_commit_journal_with_a_damaged_line(root):
    path = root / "stratalog-commits.journal"
    line = encode_line(Begin(generation=1, last_number=0))
    path.write_bytes(line)
    assert run("verify", root).code == 0
    path.write_bytes(line[:-5])
    done = run("verify", root)
    assert done.code == 0  # the last line may be cut off
    path.write_bytes(flipped(line, 12) + line)
    assert_found(run("verify", root), path, "commit_journal")


def test_clean_shutdown_marker_may_say_anything(root):
    (root / ".kafka_cleanshutdown").write_bytes(b"")
    assert run("verify", root).code == 0
    (root / ".kafka_cleanshutdown").write_bytes(b"\xff\xfe")
    done = run("verify", root)
    assert done.code == 0
    assert [f["severity"] for row in done.rows() for f in row["findings"]] == ["note"]


def test_index_is_not_judged_by_a_damaged_log(root):
    log = min((root / "orders-0").glob("*.log"))
    change(log, log.stat().st_size // 2)
    done = run("verify", root)
    assert [row["kind"] for row in bad_rows(done)] == ["log"]
    notes = {f["reason"] for row in done.rows() if row["status"] == "ok" for f in row["findings"]}
    assert notes == {"not_compared"}


# The metadata of KRaft.


def control(base, kind):
    key, value = struct.pack(">hh", 0, kind), struct.pack(">h", 0) + b"\0"
    record = Record(key=key, value=value, timestamp=5)
    return build_batch([record], BatchOptions(is_control=True, leader_epoch=1), base_offset=base)


@pytest.fixture
def kraft(root):
    folder = root / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(control(0, 2) + batch(1, leader_epoch=1) + batch(4))
    (folder / f"{7:020d}-{1:010d}.checkpoint").write_bytes(control(0, 3) + batch(1) + control(4, 4))
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    state = {"leaderId": 1, "leaderEpoch": 1, "votedId": -1, "data_version": 1}
    (folder / "quorum-state").write_text(json.dumps(state))
    (root / "bootstrap.checkpoint").write_bytes(control(0, 3) + control(1, 4))
    return folder


def test_metadata_of_kraft_is_checked(root, kraft):
    done = run("verify", root)
    assert (done.code, bad_rows(done)) == (0, [])
    names = {Path(row["path"]).name for row in done.rows() if "metadata-0" in row["path"]}
    assert names == {path.name for path in kraft.iterdir()}
    assert str(root / "bootstrap.checkpoint") in {row["path"] for row in done.rows()}


@pytest.mark.parametrize("name", ["log", "checkpoint", "bootstrap"])
def test_flipped_bit_in_the_metadata(root, kraft, name):
    path = root / "bootstrap.checkpoint" if name == "bootstrap" else next(kraft.glob(f"*.{name}"))
    change(path, -1)
    assert_found(run("verify", root), path, "crc_mismatch")


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_metadata_snapshot_without_its_footer(root, kraft, keep):
    path = next(kraft.glob("*.checkpoint"))
    path.write_bytes(b"".join([control(0, 3), batch(1)][:keep]))
    assert_found(run("verify", root), path, "snapshot_footer" if keep else "snapshot_header")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"leaderId": "a", "data_version": 0}', "\0\0"])
def test_quorum_state(root, kraft, text):
    (kraft / "quorum-state").write_text(text)
    assert_found(run("verify", root), kraft / "quorum-state", "quorum_state")


# Files that are named by themselves.


@pytest.mark.parametrize("name", ["v2-transactions", "v2-unclean", "mixed-upgrade", "v1-compacted"])
def test_healthy_side_files_may_be_named(name):
    golden = golden_set(name)
    paths = [
        path
        for folder in golden.log_dirs
        for path in [*folder.glob("*-[0-9]/*"), *folder.glob("*checkpoint"), *folder.glob("meta*")]
        if path.is_file() and path.suffix not in (".log", ".deleted")
    ]
    done = run("verify", *paths)
    assert (done.code, bad_rows(done)) == (0, [])
    assert {row["path"] for row in done.rows()} == set(map(str, paths))
    assert "log" not in {row["kind"] for row in done.rows()}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_damaged_side_file_that_is_named(root, suffix):
    path = first(root, suffix)
    change(path, 3, 4)
    done = run("verify", path)
    assert_found(done, path)
    (row,) = done.rows()
    assert row["kind"] == suffix[1:]
