"""``verify`` does not call a log ok when records are missing, and raises no false alarm on healthy ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stratalog
from tests.cli.runner import run
from tests.inspect.logs import batch, segment
from tests.judges.peers.golden import GOLDEN_DIR, golden_set, golden_sets

HEALTHY = [golden for golden in golden_sets() if not golden.damaged]


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A directory that was closed in order: two partitions, several segments each, no compaction."""
    root = tmp_path_factory.mktemp("closed") / "logs"
    with stratalog.open(str(root)) as logs:
        logs.create("orders", 2, {"internal.segment.bytes": 4000, "index.interval.bytes": 500})
        for number in range(24):
            rows = [
                {"value": bytes(100), "timestamp": 1_700_000_000_000 + 10 * number + n}
                for n in range(5)
            ]
            for partition in (0, 1):
                logs.append("orders", rows, partition=partition)
    return root


@pytest.fixture
def root(closed, tmp_path):
    return Path(shutil.copytree(closed, tmp_path / "logs"))


def segments(root, partition=0):
    return sorted((root / f"orders-{partition}").glob("*.log"))


def boundary(path):
    """The position of the last batch of a file."""
    at, data = 0, path.read_bytes()
    while True:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size >= len(data):
            return at
        at += size


def remove_segment(log):
    for path in log.parent.glob(log.stem + ".*"):
        if path.suffix != ".snapshot":
            path.unlink()


def missing(done):
    return [
        finding
        for row in done.rows()
        for finding in row["findings"]
        if finding["severity"] == "missing"
    ]


def test_healthy_directory_is_ok(root):
    done = run("verify", root)
    assert (done.code, {row["status"] for row in done.rows()}) == (0, {"ok"})
    assert len(segments(root)) >= 4


@pytest.mark.parametrize("options", [[], ["--gaps"], ["--deep"]])
@pytest.mark.parametrize("what", ["deleted", "emptied", "truncated"])
def test_middle_segment_that_lost_records(root, what, options):
    log = segments(root)[1]
    if what == "deleted":
        remove_segment(log)
    elif what == "emptied":
        log.write_bytes(b"")
    else:
        log.write_bytes(log.read_bytes()[: boundary(log)])
    done = run("verify", *options, root)
    assert done.code == 1
    (found,) = missing(done)
    assert found["reason"] == "missing_records"
    assert "restore" in found["advice"]
    (row,) = [row for row in done.rows() if row["status"] == "missing"]
    assert row["path"] == str(segments(root)[0] if what == "deleted" else log)


@pytest.mark.parametrize("at", [0, 3, 6])
def test_last_batch_whose_offset_was_raised(root, at):
    """No CRC covers it, and nothing follows it: only the recovery point of the clean shutdown tells."""
    log = segments(root)[-1]
    data = bytearray(log.read_bytes())
    data[boundary(log) + at] ^= 0x40
    log.write_bytes(data)
    done = run("verify", root)
    assert done.code == 1
    assert log.name in {Path(row["path"]).name for row in done.rows() if row["status"] == "damaged"}


def test_middle_segment_without_any_index_that_was_emptied(root):
    log = segments(root)[1]
    remove_segment(log)
    log.write_bytes(b"")
    done = run("verify", root)
    assert (done.code, len(missing(done))) == (1, 1)
    assert "there is no sign that the log was compacted" in missing(done)[0]["detail"]


@pytest.mark.parametrize("marker", [True, False])
def test_last_segment_deleted_below_the_recovery_point(root, marker):
    remove_segment(segments(root)[-1])
    if not marker:
        (root / ".kafka_cleanshutdown").unlink()
    done = run("verify", root)
    assert done.code == 1
    (found,) = missing(done)
    assert "recovery-point-offset-checkpoint says 120" in found["detail"]


def test_last_batch_gone_after_an_orderly_stop(root):
    log = segments(root)[-1]
    log.write_bytes(log.read_bytes()[: boundary(log)])
    done = run("verify", root / "orders-0")
    assert (done.code, len(missing(done))) == (1, 1)


@pytest.mark.parametrize(
    "name",
    ["replication-offset-checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint"],
)
def test_other_checkpoints_prove_a_loss_only_after_an_orderly_stop(root, name):
    for each in root.glob("*-checkpoint"):
        each.unlink()
    (root / name).write_text("0\n1\norders 0 500\n")
    done = run("verify", root)
    assert (done.code, len(missing(done))) == (1, 1)
    assert name in missing(done)[0]["detail"]
    (root / ".kafka_cleanshutdown").unlink()
    done = run("verify", root)
    assert done.code == 0
    notes = [f["reason"] for row in done.rows() for f in row["findings"]]
    assert "end_below_claims" in notes


def test_snapshot_and_leader_epoch_beyond_the_end_prove_a_loss(root):
    for each in root.glob("*-checkpoint"):
        each.unlink()
    snapshot = max((root / "orders-0").glob("*.snapshot"))
    shutil.copy(snapshot, snapshot.with_name(f"{700:020d}.snapshot"))
    assert "covers the log up to 700" in missing(run("verify", root))[0]["detail"]
    (root / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 900\n")
    done = run("verify", "-p", "1", root)
    assert (done.code, "an epoch that starts at 900" in missing(done)[0]["detail"]) == (1, True)


@pytest.mark.parametrize("named", ["recovery-point-offset-checkpoint", "stratalog-topics.json"])
def test_partition_folder_deleted_although_the_root_names_it(root, named):
    shutil.rmtree(root / "orders-1")
    for each in root.iterdir():
        if each.is_file() and each.name not in (named, ".kafka_cleanshutdown", "meta.properties"):
            each.unlink()
    done = run("verify", root)
    assert done.code == 1
    (row,) = [row for row in done.rows() if row["status"] == "missing"]
    assert (row["path"], row["kind"]) == (str(root / "orders-1"), "partition")
    assert named in row["findings"][0]["detail"]


def test_partition_that_is_being_deleted_is_not_missing(root):
    (root / "orders-1").rename(root / f"orders-1.{'0' * 32}-delete")
    (root / "stratalog-topics.json").unlink()
    assert missing(run("verify", root)) == []


def test_stale_line_of_a_late_checkpoint_is_a_note_without_an_orderly_stop(root):
    checkpoint = root / "replication-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()
    checkpoint.write_text("\n".join(["0", str(len(lines) - 1), *lines[2:], "gone 0 7"]) + "\n")
    assert len(missing(run("verify", root))) == 1
    (root / ".kafka_cleanshutdown").unlink()
    assert run("verify", root).code == 0


def test_front_of_a_log_that_was_taken_away(root):
    with stratalog.open(str(root)) as logs:
        logs.delete_records("orders", 0, 3)
    assert run("verify", root).code == 0
    remove_segment(segments(root)[0])
    done = run("verify", root)
    assert (done.code, "log-start-offset-checkpoint" in missing(done)[0]["detail"]) == (1, True)


def test_gap_in_a_compacted_log_is_a_note(root):
    remove_segment(segments(root)[1])
    (root / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 100\n")
    done = run("verify", root)
    assert done.code == 0
    reasons = [f["reason"] for row in done.rows() for f in row["findings"]]
    assert reasons == ["segment_gap"]


def test_index_entries_prove_a_loss_in_a_compacted_log_too(root):
    (root / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 100\n")
    segments(root)[1].write_bytes(b"")
    (found,) = missing(run("verify", root))
    assert "the index names offset" in found["detail"] or "the timeindex names" in found["detail"]


def test_offsets_missing_inside_a_segment_say_that_the_log_was_compacted(tmp_path):
    segment(tmp_path, 0, batch(0) + batch(30))
    segment(tmp_path, 100, batch(100))
    done = run("verify", tmp_path)
    assert done.code == 0
    assert [f["reason"] for f in done.rows()[0]["findings"]] == ["segment_gap"]


def test_segment_gap_between_named_files_is_a_note(root):
    first, _, third, *_ = segments(root)
    done = run("verify", first, third)
    assert done.code == 0
    assert [f["reason"] for f in done.rows()[0]["findings"]] == ["segment_gap"]


def test_orphan_index_with_entries_names_its_segment(root):
    log = segments(root)[1]
    log.unlink()
    done = run("verify", root)
    assert {f["reason"] for f in missing(done)} == {"missing_records", "missing_segment"}


@pytest.mark.parametrize("golden", HEALTHY, ids=[golden.name for golden in HEALTHY])
def test_golden_set_is_ok(golden):
    done = run("verify", *golden.log_dirs)
    assert done.code == 0
    assert {row["status"] for row in done.rows()} == {"ok"}
    allowed = {"segment_gap"} if "compact" in golden.name else set()
    assert {f["reason"] for row in done.rows() for f in row["findings"]} <= allowed
    names = {Path(row["path"]).name for row in done.rows()}
    files = [p for d in golden.log_dirs for p in d.glob("*-[0-9]*/*") if p.suffix != ".deleted"]
    assert {p.name for p in files if p.is_file()} <= names


@pytest.mark.parametrize(
    "folder", sorted(GOLDEN_DIR.glob("*/recovered")), ids=lambda p: p.parent.name
)
def test_what_kafka_recovered_is_ok(folder):
    done = run("verify", folder)
    assert (done.code, {row["status"] for row in done.rows()}) == (0, {"ok"})


@pytest.mark.parametrize(
    "name", ["v2-plain", "v1-plain", "v0-gzip", "v07-plain", "v2-transactions"]
)
def test_every_middle_segment_of_a_golden_set_is_missed(tmp_path, name):
    copy = Path(shutil.copytree(golden_set(name).log_dirs[0], tmp_path / "logs"))
    checked = 0
    for partition in copy.glob("*-[0-9]"):
        logs = sorted([*partition.glob("*.log"), *partition.glob("*.kafka")])
        for log in logs[1:-1] or logs[:-1]:
            if partition.name.startswith("__"):
                continue
            data = log.read_bytes()
            log.write_bytes(b"")
            done = run("verify", partition)
            assert (done.code, len(missing(done))) == (1, 1), log
            log.write_bytes(data)
            checked += 1
    assert checked


def test_directories_of_our_own_are_ok(tmp_path):
    """Retention, delete_records, truncation, transactions, a crash and the recovery from it."""
    root = str(tmp_path / "logs")
    configs = {
        "internal.segment.bytes": 4000,
        "index.interval.bytes": 500,
        "retention.bytes": 12000,
    }
    with stratalog.open(root) as logs:
        logs.create("own", 2, configs)
        for _ in range(20):
            logs.append("own", [bytes(100)] * 8)
            with logs.transaction() as transaction:
                transaction.append("own", [bytes(50)] * 3)
        aborted = logs.transaction()
        aborted.append("own", [bytes(50)] * 3)
        aborted.abort()
        assert_ok(root)
        crashed = shutil.copytree(root, tmp_path / "crashed")
        assert logs.retain() > 0
        assert_ok(root)
    assert_ok(root)
    assert_ok(str(crashed))
    stratalog.open(str(crashed)).close()
    assert_ok(str(crashed))
    with stratalog.open(root) as logs:
        logs.delete_records("own", 0, logs.partition("own", 0).log_start + 7)
        log = logs.partition("own", 1)
        log.truncate(log.log_end - 30)
        logs.append("own", ["goes on"], partition=1)
        logs.checkpoint()
        assert_ok(root)
    assert_ok(root)


def test_last_segment_deleted_that_held_less_than_a_batch(root):
    """Of this, a clean shutdown that left every checkpoint beyond the end is proof."""
    with stratalog.open(str(root)) as logs:
        logs.append("orders", [bytes(10)] * 200, partition=0)  # the widest batch
        logs.partition("orders", 0).roll()
        logs.append("orders", [b"the last one"], partition=0)
    assert_ok(str(root))
    for path in (root / "orders-0").glob(f"{segments(root)[-1].stem}.*"):
        path.unlink()
    done = run("verify", root)
    assert done.code == 1
    assert [found["reason"] for found in missing(done)] == ["missing_records"]


def test_first_segment_deleted_that_a_leader_epoch_names(root):
    remove_segment(segments(root)[0])
    done = run("verify", root)
    assert done.code == 1
    assert any("leader-epoch-checkpoint" in found["detail"] for found in missing(done))


def test_segment_that_was_renamed_into_the_one_before(root):
    log = segments(root)[1]
    base = int(log.stem)
    for path in log.parent.glob(f"{log.stem}.*"):
        path.rename(path.with_name(f"{base - 1:020d}{path.suffix}"))
    done = run("verify", root)
    assert done.code == 1
    reasons = [found["reason"] for row in done.rows() for found in row["findings"]]
    assert "segment_overlap" in reasons


@pytest.mark.parametrize("name", ["v0-compacted", "v1-compacted", "v1-k0100-compacted"])
def test_gaps_before_wrappers_are_notes(name):
    done = run("verify", "--gaps", GOLDEN_DIR / name)
    severities = {found["severity"] for row in done.rows() for found in row["findings"]}
    assert (done.code, severities) == (0, {"note"})


def assert_ok(root):
    done = run("verify", root)
    bad = [(row["path"], row["findings"]) for row in done.rows() if row["status"] != "ok"]
    assert (done.code, bad) == (0, [])
