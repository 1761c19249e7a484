"""Rewrites of open logs: what they keep, what they leave alone, and how they end early."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError, StorageError, StratalogError, UsageError
from stratalog.manager.rewrites import RewriteOptions
from stratalog.records.layout import Codec
from stratalog.rewrite.merge import Merge
from stratalog.rewrite.recompress import Recompress, codec_named
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.manager.staging import stage
from tests.rewrite.directories import ROLLED, filled, is_sound, rows
from tests.storage.logs import flip

BIG = {"internal.segment.bytes": 1 << 20}


def test_merge_joins_neighbours_up_to_the_segment_size(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    with stratalog.open(folder) as logs:
        count = len(logs.partition("t").segments)
        report = logs.merge("t", options=RewriteOptions(configs={"internal.segment.bytes": 9000}))
        assert len(logs.partition("t").segments) < count
        assert all(each.size_bytes <= 9000 for each in logs.partition("t").segments)
        assert report.bytes_before == report.bytes_after
        again = logs.merge("t", options=RewriteOptions(configs={"internal.segment.bytes": 9000}))
        assert again.bytes_before == 0
    assert rows(folder) == before
    assert is_sound(folder)


def test_recompress_copies_what_has_the_codec_already(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        counts = logs.recompress("t", "lz4", options=ROLLED).counts()
        assert counts["copied"] == 6
        assert counts["recompressed"] == 24
        assert logs.recompress("t", Codec.LZ4).counts() == {}
        assert logs.recompress("t", "lz4", level=12, force=True).counts()["recompressed"] == 30
    assert is_sound(folder)


@pytest.mark.parametrize(
    ("codec", "level"), [("brotli", None), ("zstd", 99), ("gzip", 10), ("snappy", 1), ("none", 1)]
)
def test_a_codec_or_level_that_does_not_exist_is_refused(
    tmp_path: Path, codec: str, level: int | None
) -> None:
    folder = filled(tmp_path / "logs", 30)
    with stratalog.open(folder) as logs, pytest.raises(UsageError):
        logs.recompress("t", codec, level=level)
    with pytest.raises(UsageError):
        Recompress(codec_named(codec), level)


def test_erase_by_condition_looks_into_headers_and_values(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    with stratalog.open(folder) as logs:
        logs.erase("t", ["k3"], condition="header.user = 'u1' or value is null", options=ROLLED)
    kept = [
        row
        for row in before
        if row[4] != b"k3" and row[5] is not None and ("user", b"u1") not in row[6]
    ]
    assert 0 < len(kept) < len(before)
    assert rows(folder) == kept
    assert is_sound(folder)


def test_erase_without_anything_named_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", 30)
    with stratalog.open(folder) as logs:
        for wrong in ({}, {"condition": "key ="}):
            with pytest.raises(UsageError):
                logs.erase("t", **wrong)  # type: ignore[arg-type]


def test_erase_removes_records_of_aborted_transactions(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t")
        logs.append("t", [("a", "1"), ("b", "2")])
        aborted = logs.transaction()
        aborted.append("t", [("a", "secret"), ("b", "3")])
        aborted.abort()
        with logs.transaction() as txn:
            txn.append("t", [("a", "4"), ("c", "5")])
        logs.erase("t", ["a"], options=ROLLED)
        assert [record.value for record in logs.read("t").records()] == [b"2", b"5"]
    assert [row[5] for row in rows(tmp_path / "logs")] == [b"2", b"3", b"5"]
    assert is_sound(tmp_path / "logs")


def test_records_of_an_open_transaction_are_not_touched(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t")
        logs.append("t", [("a", "1")])
        txn = logs.transaction()
        txn.append("t", [("a", "2")])
        report = logs.erase("t", ["a"], options=ROLLED)
        (partition,) = report.partitions
        assert partition.groups == ()
        assert partition.plan is not None
        assert "transaction" in partition.plan.left[0].reason
        txn.commit()
        assert logs.erase("t", ["a"], options=ROLLED).counts()["erased"] == 2


def test_readers_and_writers_go_on_while_a_log_is_rewritten(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        before = [record.offset for record in logs.read("t").records()]
        held = logs.read("t")
        failures: list[StratalogError] = []
        stop = threading.Event()

        def append() -> None:
            try:
                while not stop.is_set():
                    logs.append("t", [("new", "value")])
            except StratalogError as error:
                failures.append(error)

        thread = threading.Thread(target=append)
        thread.start()
        for codec in ("gzip", "none", "lz4"):
            logs.recompress("t", codec)
            logs.merge("t", options=RewriteOptions(configs=BIG))
        stop.set()
        thread.join()
        assert failures == []
        assert [record.offset for record in held.records()] == before
        found = [record.offset for record in logs.read("t").records()]
        assert found == list(range(logs.latest("t")))
    assert is_sound(folder)


def test_limits_end_a_rewrite_early_and_it_can_go_on(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    with stratalog.open(folder) as logs:
        size = logs.partition("t").segments[0].size_bytes
        some = logs.recompress("t", "none", options=RewriteOptions(max_bytes=2 * size))
        assert 0 < some.bytes_before <= 2 * size
        assert "limit" in some.partitions[0].plan.left[-1].reason  # type: ignore[union-attr]
        calls = iter(range(1000))
        stopped = logs.recompress(
            "t", "none", options=RewriteOptions(is_stopped=lambda: next(calls) > 1)
        )
        assert stopped.partitions[0].stopped == "the rewrite was stopped on request"
        late = logs.recompress("t", "none", options=RewriteOptions(max_seconds=1e-9))
        assert late.partitions[0].stopped == "the rewrite reached its time limit"
        logs.recompress("t", "none")
    assert rows(folder) == before
    assert is_sound(folder)
    assert not list(folder.rglob("*.cleaned"))


def test_an_interruption_leaves_a_sound_log(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with stratalog.open(folder) as logs:
        run = logs.begin_rewrite(
            Merge(), [TopicPartition("t", 0)], RewriteOptions(configs=BIG, is_stopped=interrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            run.run()
    assert rows(folder) == before
    assert is_sound(folder)
    assert not list(folder.rglob("*.cleaned"))


def test_a_damaged_middle_segment_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    data = sorted((folder / "t-0").glob("*.log"))
    flip(data[2], 300)
    before = {path: path.read_bytes() for path in data}
    with stratalog.open(folder) as logs:
        for rewrite in (
            lambda: logs.merge("t", options=RewriteOptions(configs=BIG)),
            lambda: logs.erase("t", ["k1"]),
            lambda: logs.reindex("t"),
        ):
            with pytest.raises(CorruptionError, match="CRC") as raised:
                rewrite()
            assert raised.value.path == str(data[2])
    assert {path: path.read_bytes() for path in data} == before


@pytest.mark.parametrize("call", [Call.WRITE, Call.SYNC, Call.LINK, Call.MAKE_DIR, Call.RENAME])
def test_a_full_disk_is_one_error_and_the_log_goes_on(tmp_path: Path, call: Call) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    faulty = FaultyFileSystem(OsFileSystem())
    with stratalog.open(folder, file_system=faulty) as logs:
        logs.partition("t")
        faulty.arm(1, fault=Fault.ENOSPC, calls=(call,))
        with pytest.raises(StorageError) as raised:
            logs.merge("t", options=RewriteOptions(configs=BIG, keep_undo=True))
        assert raised.value.errno == errno.ENOSPC
        faulty.heal()
        if logs.partition("t").failure is None:
            logs.append("t", ["more"])
            assert logs.kept_rewrites() == []
    assert rows(folder)[: len(before)] == before
    assert is_sound(folder)


def test_a_rewrite_that_does_not_fit_on_the_disk_is_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    folder = filled(tmp_path / "logs")

    class Full(OsFileSystem):
        def free_bytes(self, path: str) -> int | None:
            return 1000

    with stratalog.open(folder, file_system=Full()) as logs:
        names = sorted(path.name for path in (folder / "t-0").iterdir())
        with pytest.raises(StorageError, match="1000 are free"):
            logs.merge("t", options=RewriteOptions(configs=BIG))
        assert sorted(path.name for path in (folder / "t-0").iterdir()) == names


def test_the_manifest_lists_segments_before_and_after(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    path = tmp_path / "manifest.json"
    with stratalog.open(folder) as logs:
        report = logs.erase("t", ["k1"], options=RewriteOptions(roll=True, manifest=str(path)))
    manifest = json.loads(path.read_bytes())
    assert (manifest["id"], manifest["verb"]) == (report.id, "erase")
    assert manifest["options"] == {"keys": 1, "condition_on": []}
    groups = manifest["partitions"][0]["groups"]
    erased = sum(group["counts"]["erased"] for group in groups)
    assert erased == report.counts()["erased"] > 0
    for group in groups:
        before = sum(each["records"] for each in group["before"])
        after = sum(each["records"] for each in group["after"])
        assert before - after == group["counts"]["erased"]
        for each in group["after"]:
            data = (folder / "t-0" / each["name"]).read_bytes()
            assert len(data) == each["size_bytes"]
            assert f"{stratalog.records.kernel.crc32c(data):08x}" == each["crc32c"]


def test_upgrade_and_recompress_of_magic_2_alone_do_nothing(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", 30)
    with stratalog.open(folder) as logs:
        assert logs.upgrade("t", options=ROLLED).bytes_before == 0


def test_rewrites_of_logs_that_are_open_read_only_are_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", 30)
    with stratalog.open(folder, read_only=True) as logs:
        for call in (logs.merge, logs.upgrade, logs.reindex):
            with pytest.raises(UsageError, match="read-only"):
                call("t")
        planned = list(logs.plan_rewrite(Merge(), [TopicPartition("t", 0)]))
        assert planned[0].plan is not None


def test_records_of_a_commit_that_is_not_done_are_not_touched() -> None:
    disk = memory()
    files = FaultyFileSystem(disk)
    logs = open_memory(files)
    logs.create("t", 2, {"internal.segment.bytes": 400, "index.interval.bytes": 100})
    logs.append("t", ["seen"], partition=0)
    values: dict[tuple[str, int], list[str]] = {("t", 0): ["of the commit"], ("t", 1): ["also"]}
    key = CommitKey("query", 1)
    pieces = stage(files, ROOT, key, values, clock=ManualClock())
    files.arm(4, fault=Fault.ENOSPC, calls=[Call.WRITE])  # of the second partition
    with pytest.raises(StorageError):
        logs.commit(key, pieces)
    files.heal()
    assert logs.partition("t").log_end == 2, "the record is in the log, and hidden"
    logs.erase("t", condition="value is not null", options=ROLLED)
    pieces = stage(files, ROOT, CommitKey("query", 2), {}, clock=ManualClock())
    logs.commit(CommitKey("query", 2), pieces)
    found = [[each.value for each in logs.read("t", number).records()] for number in (0, 1)]
    assert found[0][-1:] == [b"of the commit"]
    assert found[1] == [b"also"]
    logs.close()


def test_compaction_has_no_limit_of_bytes(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", 30)
    with stratalog.open(folder) as logs:
        named = logs.topic_partitions("t", None)
        options = RewriteOptions(max_bytes=1)
        with pytest.raises(UsageError, match="max_bytes has no meaning"):
            logs.begin_rewrite(logs.compaction(), named, options)
        with pytest.raises(UsageError, match="max_bytes has no meaning"):
            list(logs.plan_rewrite(logs.compaction(), named, options))
    for seconds in (float("inf"), float("nan"), 0, -1):
        with pytest.raises(UsageError, match="max_seconds"):
            RewriteOptions(max_seconds=seconds)
