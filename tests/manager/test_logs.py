"""``stratalog.open``: appending, reading, looking after, closing; the golden directories among others."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    DamagedLogError,
    InvalidRecordError,
    LogFailedError,
    OffsetOutOfRangeError,
    StorageError,
    TransactionStateError,
    UsageError,
)
from stratalog.manager.write.batches import fit_sizes
from stratalog.manager.write.partitioner import partition_of_key
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Check, Codec
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import scan_batches
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.log_config import LogConfig
from stratalog.testing import (
    Call,
    Explorer,
    Facts,
    Fault,
    FaultyFileSystem,
    ManualClock,
    MemoryFileSystem,
)
from stratalog.types import TopicPartition
from tests.judges.peers.golden import GoldenSet, decoded, golden_set, golden_sets
from tests.manager.logdirs import memory, open_memory, tree, values
from tests.scale import SCALE, fresh, sized

MARKER = ".kafka_cleanshutdown"
LOG = "00000000000000000000.log"


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path / "logs") as opened:
        yield opened


def headers_of(folder: Path) -> list[Any]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    return list(scan_batches(data, check=Check.CRC | Check.ORDER | Check.CONTIGUOUS))


# --- what is asked for wrongly ---------------------------------------------------------------------


@pytest.mark.parametrize("paths", [[], (), [None], 5, [b"x"]])
def test_no_directory_is_a_usage_error(paths):
    with pytest.raises((UsageError, TypeError)):
        stratalog.open(paths)


def test_wrong_word_names_the_right_ones(tmp_path, logs):
    logs.create("a")
    logs.append("a", ["x"])
    with pytest.raises(UsageError, match="on_damage is one of refuse, cut"):
        stratalog.open(tmp_path / "x", on_damage="ignore")
    assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError, match=r"no isolation 'committed': there are .*read_committed"):
        logs.read("a", isolation="committed")
    with pytest.raises(UsageError, match="no isolation"):
        logs.tail("a", isolation="dirty")
    with pytest.raises(UsageError, match="no codec 'rar': there are none, gzip"):
        logs.append("a", ["x"], codec="rar")
    for wrong in (None, 4, b"zstd"):
        with pytest.raises(UsageError, match="no codec"):
            logs.append("a", ["x"], codec=wrong)
    for size in (0, -1, 1.5, None):
        with pytest.raises(UsageError, match="batch_bytes"):
            logs.append("a", ["x"], batch_bytes=size)
    assert values(logs, "a") == [b"x"]


# --- appending -------------------------------------------------------------------------------------


def test_every_kind_of_record_comes_back(logs):
    logs.create("a", 3)
    results = logs.append(
        "a",
        [
            Record(b"v", b"k", 5, (RecordHeader("h", None),)),
            {"key": b"k2", "value": None, "timestamp": 7, "partition": 2, "headers": {"a": "b"}},
            ("k3", "v3"),
        ],
    )
    assert sum(each.last_offset - each.first_offset + 1 for each in results) == 3
    found = {record.key: record for record in logs.read("a").records()}
    assert found[b"k"].headers == (RecordHeader("h", None),)
    assert (found[b"k"].timestamp, found[b"k"].value) == (5, b"v")
    assert (found[b"k2"].partition, found[b"k2"].value, found[b"k2"].timestamp) == (2, None, 7)
    assert found[b"k2"].headers == (RecordHeader("a", b"b"),)
    assert found[b"k3"].partition == partition_of_key(b"k3", 3)


def test_results_are_those_of_each_partition_in_order(logs):
    logs.create("a", 3)
    logs.append("a", ["x"] * 10, partition=1)
    by_partition = logs.append_by_partition(
        "a", [{"value": "y", "partition": each} for each in (2, 1, 1, 0)]
    )
    assert {n: (r.first_offset, r.last_offset) for n, r in by_partition.items()} == {
        0: (0, 0), 1: (10, 11), 2: (0, 0),
    }  # fmt: skip
    results = logs.append("a", [{"value": "y", "partition": each} for each in (2, 1)])
    assert [result.first_offset for result in results] == [12, 1]
    assert logs.append("a", []) == []


def test_keys_go_where_kafkas_producers_send_them(logs):
    logs.create("a", 5)
    logs.append("a", [(str(n), "v") for n in range(200)])
    for record in logs.read("a").records():
        assert record.key is not None
        assert record.partition == partition_of_key(record.key, 5)


def test_records_without_a_key_take_turns_call_by_call(logs):
    logs.create("a", 3)
    for _ in range(6):
        assert len(logs.append("a", ["x", "y"])) == 1
    assert [logs.latest("a", each) for each in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_codecs(tmp_path, logs, codec):
    logs.create("a")
    payload = [b"abcdefgh" * 200 + b"%d" % n for n in range(100)]
    logs.append("a", payload, codec=codec)
    logs.append("a", payload, codec=codec.name.lower())
    logs.append("a", payload, codec=codec.name, level=None)
    assert values(logs, "a") == payload * 3
    assert {header.codec for header in headers_of(tmp_path / "logs" / "a-0")} == {codec}


def test_topic_may_say_the_codec(tmp_path, logs):
    logs.create("a", 1, compression_type="lz4")
    logs.append("a", ["x" * 1000] * 10)
    assert {header.codec for header in headers_of(tmp_path / "logs" / "a-0")} == {Codec.LZ4}


@pytest.mark.parametrize("level", [99, -99, "high"])
def test_level_that_the_codec_does_not_have_is_a_typed_error(logs, level):
    logs.create("a")
    with pytest.raises((UsageError, InvalidRecordError)):
        logs.append("a", ["x"], codec="gzip", level=level)
    assert values(logs, "a") == []


def test_arrow_in_and_out(logs):
    pa = pytest.importorskip("pyarrow")
    logs.create("a", 3)
    logs.create("b", 3)
    table = pa.table(
        {"key": [b"%d" % (n % 50) for n in range(1000)], "value": [b"%d" % n for n in range(1000)]}
    )
    logs.append("a", table, codec="zstd")
    assert sorted(logs.read("a").to_table()["value"].to_pylist()) == sorted(
        table["value"].to_pylist()
    )
    logs.append("b", logs.read("a"))  # what was read can be appended: partitions and times are kept
    columns = ["partition", "timestamp_ms", "key", "value"]
    assert logs.read("b", columns=columns).to_table() == logs.read("a", columns=columns).to_table()
    logs.append("b", logs.read("a", 0).records())
    assert logs.latest("b", 0) == 2 * logs.latest("a", 0)


LONG = """
import sys, stratalog
from pathlib import Path
def peak():  # ru_maxrss would remember the process that started this one
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
with stratalog.open(sys.argv[1], sync=False) as logs:
    logs.create("a", 2)
    logs.append("a", ((b"%d" % n, b"x" * 500) for n in range(20_000)))
    sum(1 for _ in logs.read("a").records())
    before = peak()
    logs.append("a", ((b"%d" % n, b"x" * 500) for n in range(200_000)))
    written = peak()
    count = sum(1 for _ in logs.read("a", columns=["offset"]).records())
    print(count, written - before, peak() - written)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_long_input_and_output_stay_in_bounded_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LONG, tmp_path / "logs"], capture_output=True, text=True, check=True
    )
    count, writing, reading = map(int, done.stdout.split())
    assert count == 220_000
    assert writing < 20 << 20  # all of it would be 100 MB and more
    assert reading < 20 << 20


@pytest.mark.parametrize(
    "configs",
    [
        {"max_message_bytes": 300},
        {"max_message_bytes": 1000},
        {"segment_bytes": 1 << 20},
        {"internal_segment_bytes": 400},
        {"internal_segment_bytes": 5000, "max_message_bytes": 1 << 30},
        {"internal_segment_bytes": 200_000, "compression_type": "gzip"},
    ],
    ids=str,
)
@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
def test_small_records_are_never_refused_for_being_many(logs, configs, codec):
    """However small batches and segments of the topic are, and whatever the caller says of batches."""
    logs.create("a", 1, configs)
    random_bytes = random.Random(7).randbytes
    payload = [random_bytes(100) for _ in range(30_000 if "segment_bytes" in configs else 500)]
    logs.append("a", payload, codec=codec, batch_bytes=10 << 20)
    logs.append("a", payload[:50], codec=codec)
    assert values(logs, "a") == payload + payload[:50]


def test_batch_bytes_are_what_the_caller_wants(tmp_path, logs):
    logs.create("a")
    logs.append("a", ["x" * 90] * 1000, batch_bytes=1000)
    sizes = [header.size_bytes for header in headers_of(tmp_path / "logs" / "a-0")]
    assert max(sizes) <= 1061
    assert len(sizes) >= 100
    logs.append("a", ["x" * 5000], batch_bytes=1000)  # one record may be larger


def test_sizes_fit_the_topic():
    options = BatchOptions(batch_bytes=128 << 10)
    assert fit_sizes(LogConfig(), options) == (128 << 10, 1 << 20)
    small = fit_sizes(LogConfig.of(max_message_bytes=1000), options)
    assert small.batch_bytes == 1000 - 61
    packed = fit_sizes(LogConfig.of(max_message_bytes=1000), replace(options, codec=Codec.ZSTD))
    assert packed.batch_bytes < 900
    tiny = fit_sizes(LogConfig.of(internal_segment_bytes=10), options)
    assert tiny == (1, 1)
    assert fit_sizes(LogConfig.of(segment_bytes=1 << 20), options).piece_bytes == 1


def test_large_record_behind_small_ones_fits_its_segment(logs):
    logs.create("a", 1, segment_bytes=1 << 20)
    payload = ["x" * 100_000] * 5 + ["y" * 1_000_000] + ["z" * 100] * 5
    logs.append("a", payload)
    assert values(logs, "a") == [each.encode() for each in payload]


def test_record_that_is_too_large_is_refused(logs):
    logs.create("a", 1, max_message_bytes=1000)
    with pytest.raises(BatchTooLargeError):
        logs.append("a", ["x" * 1000])
    logs.append("a", ["x" * 900])
    assert logs.latest("a") == 1


@pytest.mark.parametrize("wrong_at", [0, 100, 8191, 8192, 20_000])
def test_wrong_record_leaves_what_went_in_before(logs, wrong_at):
    """Records go in 8192 at a time: of the group that holds the wrong one none is appended."""
    logs.create("a", 1)
    data: list[Any] = [str(n) for n in range(wrong_at)] + [5] + ["behind"] * 100
    with pytest.raises(UsageError, match="int is not a record"):
        logs.append("a", iter(data))
    before = wrong_at // 8192 * 8192
    assert values(logs, "a") == [str(n).encode() for n in range(before)]
    logs.append("a", ["next"])
    assert logs.latest("a") == before + 1


def test_error_of_the_callers_own_generator_comes_through(logs):
    logs.create("a")

    def numbers():
        yield from map(str, range(9000))
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        logs.append("a", numbers())
    assert logs.latest("a") == 8192
    assert logs.partition("a").synced_offset == 8192  # what is in is on the disk


def test_leader_epoch_goes_on_from_the_last_one(tmp_path):
    """An append with a lower epoch than the log's would make Kafka forget the newer ones."""
    root = copied(golden_set("v2-leader-epochs"), tmp_path)
    with stratalog.open(root) as logs:
        ((name, topic),) = logs.topics().items()
        log = logs.partition(name, topic.partitions[0])
        before = log.epochs
        assert before[-1][0] > 0
        logs.append(name, ["ours"], partition=topic.partitions[0])
        with logs.transaction() as txn:
            txn.append(name, ["ours too"], partition=topic.partitions[0])
        assert log.epochs == before
    headers = headers_of(root / f"{name}-{topic.partitions[0]}")
    assert [header.leader_epoch for header in headers[-3:]] == [before[-1][0]] * 3


def test_threads_may_append_and_read_together(logs):
    logs.create("a", 2)
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for n in range(30):
                logs.append("a", [(f"{name}", f"{name}-{n}")] * 3)
                logs.create(f"{name}-{n}")
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def read() -> None:
        try:
            for _ in range(30):
                seen = values(logs, "a")
                assert len(seen) % 3 == 0
                logs.topics()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = values(logs, "a")
    assert len(found) == 4 * 30 * 3
    for name in ("w0", "w3"):
        own = [each for each in found if each is not None and each.startswith(name.encode())]
        assert own == [b"%s-%d" % (name.encode(), n) for n in range(30) for _ in range(3)]
    assert len(logs.topics()) == 121


# --- when records are safe, and when they are seen -------------------------------------------------


def test_appended_is_on_the_disk_and_seen(logs):
    logs.create("a")
    logs.append("a", ["x"])
    assert logs.partition("a").synced_offset == 1
    assert values(logs, "a") == [b"x"]


def test_without_sync_it_is_seen_when_it_is_synced(logs):
    logs.create("a")
    logs.append("a", ["x"], sync=False)
    assert (values(logs, "a"), logs.latest("a")) == ([], 1)
    assert values(logs, "a", isolation="log_end") == [b"x"]
    logs.flush()
    assert values(logs, "a") == [b"x"]


def test_logs_opened_without_sync_show_what_is_written(tmp_path):
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("a")
        logs.append("a", ["x"])
        assert values(logs, "a") == [b"x"]
        assert logs.partition("a").synced_offset == 0
        logs.append("a", ["y"], sync=True)
        assert logs.partition("a").synced_offset == 2


@pytest.mark.scaled
@pytest.mark.parametrize("sync", [True, False])
def test_acknowledged_is_there_wherever_the_power_is_cut(sync, record_property):
    """Two topics over two directories are appended to, rolled, shortened and closed; the power is cut at
    every step, and in the recovery after it. What was acknowledged is there, what was deleted is not."""
    roots = ("/a", "/b")
    configs = {"internal.segment.bytes": 400}

    def scenario(file_system: MemoryFileSystem, facts: Facts[Any]) -> None:
        logs = open_memory(file_system, *roots, sync=sync)
        logs.create("t", 2, configs)
        for n in range(4):
            logs.append("t", [f"{n}" * 60], partition=n % 2, sync=True)
            facts.note(("there", n % 2, n // 2, f"{n}" * 60))
        logs.flush()
        logs.append("t", ["loose"], partition=0, sync=False)
        logs.delete_records("t", 0, 1)
        facts.note(("gone", 0, 1))
        logs.close()
        facts.note(("there", 0, 2, "loose"))

    def check(file_system: MemoryFileSystem, facts: Facts[Any]) -> None:
        with open_memory(file_system, *roots, sync=sync) as logs:
            if "t" not in logs.topics():
                assert not facts
                return
            found = {
                (record.partition, record.offset): (record.value or b"").decode()
                for record in logs.read("t").records()
            }
            start = logs.earliest("t", 0)  # it may be raised, and nobody told of it
            assert start in ((1,) if any(fact[0] == "gone" for fact in facts) else (0, 1))
            for kind, partition, offset, *value in facts:
                if kind == "there" and (partition or offset >= start):
                    assert found[partition, offset] == value[0]
            if start:
                facts.note(("gone", 0, 1))
            for (partition, offset), value in found.items():
                facts.note(("there", partition, offset, value))

    done = Explorer(
        scenario, check, seed=fresh(0), states_per_point=sized(1, 3 * SCALE), depth=sized(1, 2),
        nested_points=1, nested_states=1, start=lambda: MemoryFileSystem(folders=roots),
    ).run()  # fmt: skip
    record_property("counted: power cuts over several directories", done.crashes)
    assert done.points > 80


# --- looking after ---------------------------------------------------------------------------------


def offsets_in(path: Path) -> dict[TopicPartition, int]:
    return decode_offsets(path.read_bytes())


def test_deleted_records_stay_deleted(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", [str(n) for n in range(10)], partition=0)
        logs.append("a", ["x"], partition=1)
        assert logs.delete_records("a", 0, 4) == 4
        starts = tmp_path / "log-start-offset-checkpoint"
        assert offsets_in(starts) == {
            TopicPartition("a", 0): 4
        }  # at once, and only where it must be
        assert logs.earliest("a") == 4
        assert values(logs, "a", 0) == [b"%d" % n for n in range(4, 10)]
        assert logs.delete_records("a", 0, 2) == 4
        for wrong in (11, -2):
            with pytest.raises(OffsetOutOfRangeError):
                logs.delete_records("a", 0, wrong)
        before = starts.read_bytes()
        for no_offset in (
            5.0,
            "5",
            True,
            None,
        ):  # 5.0 was taken, and no Kafka could read the file then
            with pytest.raises(UsageError, match="whole number"):
                logs.delete_records("a", 0, no_offset)  # type: ignore[arg-type]
        assert starts.read_bytes() == before
    with stratalog.open(tmp_path) as logs:
        assert logs.earliest("a") == 4
        assert logs.delete_records("a", 0, -1) == 10
        assert values(logs, "a", 0) == []
        assert logs.append("a", ["next"], partition=0)[0].first_offset == 10
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert (logs.earliest("a"), values(logs, "a", 0)) == (10, [b"next"])


def test_retention_deletes_segments_and_forgets_the_log_start(tmp_path):
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        logs.create("a", 1, retention_ms=100_000, internal_segment_bytes=200)
        logs.append("a", ["x" * 100, "y" * 100, "z" * 100], batch_bytes=1)
        logs.delete_records("a", 0, 1)
        assert logs.retain() == 1  # below the start already
        clock.advance(200_000)
        logs.append("a", ["new"])
        assert logs.retain() == 2
        assert values(logs, "a") == [b"new"]
        assert logs.earliest("a") == 3
        assert offsets_in(tmp_path / "log-start-offset-checkpoint") == {}
        assert len(list((tmp_path / "a-0").glob("*.log.deleted"))) == 2
        clock.advance(60_000)
        logs.retain()
        assert list((tmp_path / "a-0").glob("*.deleted")) == []
    with stratalog.open(tmp_path, clock=clock) as logs:
        assert (logs.earliest("a"), values(logs, "a")) == (3, [b"new"])


def test_flush_writes_down_what_recovery_need_not_look_at(tmp_path, logs):
    root = tmp_path / "logs"
    logs.create("a", 2)
    logs.append("a", ["x"] * 5, partition=0)
    assert not (root / "recovery-point-offset-checkpoint").exists()
    logs.flush()
    points = offsets_in(root / "recovery-point-offset-checkpoint")
    assert points == {TopicPartition("a", 0): 5}
    marks = offsets_in(root / "replication-offset-checkpoint")
    assert marks == {TopicPartition("a", 0): 5}


def test_what_is_said_of_partitions_that_were_not_opened_stays(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 3)
        for number in range(3):
            logs.append("a", ["x"] * (number + 5), partition=number)
            logs.delete_records("a", number, number + 1)
    before = {
        name: offsets_in(tmp_path / name)
        for name in (
            "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        )
    }  # fmt: skip
    foreign = TopicPartition("of-another", 7)
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(path.read_text().replace("0\n3\n", "0\n4\n") + "of-another 7 123\n")
    with stratalog.open(tmp_path) as logs:
        logs.append("a", ["y"], partition=1)
        logs.flush()
    moved = {TopicPartition("a", 1): 7}
    assert offsets_in(path) == {**before[path.name], **moved, foreign: 123}
    starts = "log-start-offset-checkpoint"
    assert offsets_in(tmp_path / starts) == before[starts]
    marks = "replication-offset-checkpoint"
    assert offsets_in(tmp_path / marks) == {**before[marks], **moved}


def test_partition_that_moved_is_forgotten_where_it_was(tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    with stratalog.open(roots) as logs:
        logs.create("t", 2)
        logs.append("t", ["x", "y"], partition=0)
        logs.append("t", ["z"], partition=1)
    shutil.move(roots[0] / "t-0", roots[1] / "t-0")
    with stratalog.open(roots) as logs:
        assert values(logs, "t") == [b"x", b"y", b"z"]
    points = [offsets_in(root / "recovery-point-offset-checkpoint") for root in roots]
    assert points == [{}, {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}]


# --- the end ---------------------------------------------------------------------------------------


def test_closing_twice_and_using_after_closing(tmp_path):
    logs = stratalog.open(tmp_path)
    logs.create("a")
    logs.append("a", ["x"])
    rows = logs.read("a")
    records = logs.read("a").records()
    tail = logs.tail("a", start=0)
    assert next(tail).value == b"x"
    txn = logs.transaction()
    log = logs.partition("a")
    logs.close()
    logs.close()
    for call in (
        lambda: logs.append("a", ["x"]),
        lambda: logs.create("b"),
        lambda: logs.add_partitions("a", 2),
        lambda: logs.read("a"),
        lambda: logs.tail("a"),
        lambda: logs.partition("a"),
        lambda: logs.transaction(),
        lambda: logs.flush(),
        lambda: logs.checkpoint(),
        lambda: logs.retain(),
        lambda: logs.delete_records("a", 0, 1),
        lambda: logs.earliest("a"),
        lambda: logs.latest("a"),
        lambda: list(rows),
        lambda: next(records),
    ):
        with pytest.raises(UsageError, match="closed"):
            call()
    with pytest.raises(stratalog.StratalogError):
        txn.append("a", ["x"])
    with pytest.raises(UsageError, match="a-0 is closed"):
        log.append(build_batch([Record(b"x")]))
    assert list(tail) == []


def test_closing_while_others_append_loses_nothing_that_was_acknowledged(tmp_path):
    logs = stratalog.open(tmp_path)
    logs.create("a", 2)
    acknowledged: list[bytes] = []
    wrong: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for n in range(100_000):
                value = f"{name}-{n}"
                if n % 3:
                    logs.append("a", [(value, value)])
                else:
                    with logs.transaction() as txn:
                        txn.append("a", [(value, value)])
                acknowledged.append(value.encode())
        except (UsageError, TransactionStateError):
            pass  # it is closed, or was aborted by the closing
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(3)]
    for writer in writers:
        writer.start()
    while len(acknowledged) < 30:
        time.sleep(0.005)
    logs.close()
    for writer in writers:
        writer.join()
    assert wrong == []
    assert (tmp_path / MARKER).exists()
    with stratalog.open(tmp_path) as logs:
        assert logs.partition("a").report.recovered_segments == []
        found = set(values(logs, "a", isolation="read_committed"))
        assert set(acknowledged) <= found
        for number in range(2):
            log = logs.partition("a", number)
            assert log.last_stable_offset == log.log_end


def test_read_only_logs_are_closed_too(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    logs = stratalog.open(tmp_path, read_only=True)
    rows = logs.read("a")
    logs.close()
    logs.close()
    with pytest.raises(UsageError, match="closed"):
        logs.read("a")
    with pytest.raises(UsageError, match="closed"):
        list(rows.records())


def test_error_in_the_block_closes_in_order(tmp_path):
    def use() -> None:
        with stratalog.open(tmp_path) as logs:
            logs.create("a")
            logs.append("a", ["x"])
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        use()
    assert (tmp_path / MARKER).exists()
    with stratalog.open(tmp_path) as logs:
        assert values(logs, "a") == [b"x"]


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.EMFILE])
def test_closing_does_all_that_it_can_whatever_fails(fault):
    """Every call of a closing fails once: the locks are free, the logs can be opened, and the marker is
    there only where everything was written."""
    number = 0
    while True:
        number += 1
        file_system = memory("/a", "/b")
        faulty = FaultyFileSystem(file_system)
        logs = open_memory(faulty, "/a", "/b")
        logs.create("t", 2)
        logs.append("t", ["x"], partition=0)
        logs.append("t", ["y"], partition=1)
        faulty.arm(number, fault=fault)
        try:
            logs.close()
        except StorageError:
            markers = [path for path in file_system.paths() if path.endswith(MARKER)]
            assert len(markers) < 2 or faulty.failed[0].call in (Call.SYNC_DIR, Call.UNLINK)
        if not faulty.failed:
            break
        faulty.heal()
        with open_memory(file_system, "/a", "/b") as logs:
            assert values(logs, "t") == [b"x", b"y"]
    assert number > 30 or fault is Fault.EMFILE


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.INTERRUPT])
def test_opening_that_fails_changes_nothing_that_matters(fault):
    """Every call of an opening fails once: nothing stays locked, and the next opening finds everything."""
    source = memory("/a", "/b")
    with open_memory(source, "/a", "/b") as logs:
        logs.create("t", 2)
        logs.append("t", ["x"], partition=0)
        txn = logs.transaction()
        txn.append("t", ["never"], partition=1)
        txn._logs = None  # type: ignore[assignment] # it is not there to be ended
        logs._transactions.clear()
    number = 0
    while True:
        number += 1
        file_system = source.fork()
        faulty = FaultyFileSystem(file_system, fail_at=number, fault=fault)
        with suppress(StorageError, KeyboardInterrupt):
            open_memory(faulty, "/a", "/b").close()
        if not faulty.failed:
            break
        with open_memory(file_system, "/a", "/b") as logs:
            assert values(logs, "t", isolation="read_committed") == [b"x"]
            logs.append("t", ["y"], partition=1)
            assert values(logs, "t", isolation="read_committed") == [b"x", b"y"]
    assert number > 20


def test_full_disk_is_a_clean_error_and_appends_resume():
    file_system = memory()
    faulty = FaultyFileSystem(file_system)
    logs = open_memory(faulty)
    logs.create("a")
    logs.append("a", ["x"])
    faulty.arm(1, fault=Fault.ENOSPC, sticky=True)
    for _ in range(2):
        with pytest.raises(StorageError, match="no space"):
            logs.append("a", ["y"])
        assert values(logs, "a") == [b"x"]
    faulty.heal()
    logs.append("a", ["z"])
    assert values(logs, "a") == [b"x", b"z"]
    logs.close()


def test_failed_write_is_told_first_and_then_what_came_of_it():
    file_system = memory()
    faulty = FaultyFileSystem(file_system)
    logs = open_memory(faulty)
    logs.create("a")
    logs.append("a", ["x"])
    faulty.arm(1, fault=Fault.EIO, calls=[Call.WRITE])
    with pytest.raises(StorageError, match="input/output") as caught:
        logs.append("a", ["y"])
    assert not isinstance(caught.value, LogFailedError)
    with pytest.raises(LogFailedError, match="reopen the log directory"):
        logs.append("a", ["y"])
    assert values(logs, "a") == [b"x"]
    logs.close()


def test_damage_is_refused_or_cut_as_wished(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        for n in range(5):
            logs.append("a", [f"{n}" * 50])
    (tmp_path / MARKER).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    path = tmp_path / "a-0" / LOG
    data = bytearray(path.read_bytes())
    data[len(data) // 5 * 2 + 80] ^= 1
    path.write_bytes(data)
    with stratalog.open(tmp_path) as logs, pytest.raises(DamagedLogError, match="on_damage='cut'"):
        logs.append("a", ["x"])
    assert not (tmp_path / MARKER).exists()
    with stratalog.open(tmp_path, on_damage="cut") as logs:
        logs.append("a", ["x"])
        assert values(logs, "a") == [b"0" * 50, b"1" * 50, b"x"]


def test_files_of_kafka_07_are_not_written_to(tmp_path):
    root = copied(golden_set("v07-plain"), tmp_path)
    for read_only in (False, True):
        with stratalog.open(root, read_only=read_only) as logs:
            for name in logs.topics():
                with pytest.raises(UsageError, match=r"Kafka 0.7.*stratalog.scan"):
                    list(logs.read(name).records())


def test_no_descriptor_is_left_open(tmp_path):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc here")
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 4, internal_segment_bytes=200)
    before = count()
    for _ in range(3):
        with stratalog.open(tmp_path) as logs:
            logs.append("a", [(str(n), "x" * 100) for n in range(40)])
            values(logs, "a")
        with stratalog.open(tmp_path, read_only=True) as logs:
            values(logs, "a")
        del logs
    assert count() <= before


# --- light -----------------------------------------------------------------------------------------


def test_opening_and_appending_import_nothing_heavy(tmp_path):
    program = (
        "import sys, stratalog\n"
        f"with stratalog.open({str(tmp_path / 'logs')!r}) as logs:\n"
        "    logs.create('a', 2)\n"
        "    logs.append('a', [('k', 'v')])\n"
        "    list(logs.read('a').records())\n"
        "    list(logs.tail('a', start=0, timeout_s=0))\n"
        "    with logs.transaction() as txn:\n"
        "        txn.append('a', ['x'])\n"
        "print(*sorted(set(sys.modules) & {'pyarrow', 'numpy', 'cramjam', 'click', 'rich', 'asyncio',"
        " 'logging', 'pathlib', 'difflib', 'subprocess'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


# --- directories that Kafka wrote ------------------------------------------------------------------


def copied(golden: GoldenSet, tmp_path: Path) -> Path:
    target = tmp_path / golden.name
    shutil.copytree(golden.path, target)
    return target


def opened(golden: GoldenSet, root: Path, **options: Any) -> Any:
    roots = [root / each.relative_to(golden.path) for each in golden.log_dirs]
    return stratalog.open(roots, **options)


def expected_rows(golden: GoldenSet, *, committed: bool) -> list[tuple[Any, ...]]:
    rows = map(decoded, golden.expected(committed=committed))
    return sorted(
        (r["topic"], r["partition"], r["offset"], r["timestamp"], r["timestamp_type"], r["key"] is None,
         r["key"] or b"", r["value"], r["headers"])
        for r in rows
    )  # fmt: skip


def read_rows(logs: Any, isolation: str) -> list[tuple[Any, ...]]:
    return [
        (r.topic, r.partition, r.offset, r.timestamp, int(r.timestamp_type), r.key is None,
         r.key or b"", r.value, tuple((h.key, h.value) for h in r.headers))
        for name in logs.topics()
        for r in logs.read(name, isolation=isolation).records()
    ]  # fmt: skip


SETS = [each for each in golden_sets() if not each.is_v07]
WHOLE = [each for each in SETS if not each.damaged]
DAMAGED = [each for each in SETS if each.damaged]


@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize("golden", WHOLE, ids=lambda golden: golden.name)
def test_golden_directory_reads_as_kafka_read_it(tmp_path, golden, read_only):
    root = copied(golden, tmp_path)
    before = tree(root)
    with opened(golden, root, read_only=read_only) as logs:
        assert read_rows(logs, "read_uncommitted") == expected_rows(golden, committed=False)
        if golden.has_committed:
            assert read_rows(logs, "read_committed") == expected_rows(golden, committed=True)
        for part in golden.partitions():
            start = golden.log_start_offset(part.topic, part.partition)
            end = golden.log_end_offset(part.topic, part.partition)
            assert logs.earliest(part.topic, part.partition) == start
            assert logs.latest(part.topic, part.partition) == end
    if read_only:
        assert tree(root) == before
        return
    # The data files are as they were, and a second opening finds the same.
    for name, (data, _, _) in before.items():
        if name.endswith(".log"):
            assert (root / name).read_bytes() == data
    with opened(golden, root) as logs:
        assert read_rows(logs, "read_uncommitted") == expected_rows(golden, committed=False)


@pytest.mark.parametrize("golden", DAMAGED, ids=lambda golden: golden.name)
def test_golden_directory_that_a_killed_kafka_left_is_recovered_as_kafka_did(tmp_path, golden):
    root = copied(golden, tmp_path)
    shutil.rmtree(root / "recovered", ignore_errors=True)
    with opened(golden, root, on_damage="cut") as logs:
        assert read_rows(logs, "read_uncommitted") == expected_rows(golden, committed=False)


@pytest.mark.parametrize("golden", WHOLE, ids=lambda golden: golden.name)
def test_golden_directory_can_be_appended_to(tmp_path, golden):
    root = copied(golden, tmp_path)
    places = [(part.topic, part.partition) for part in golden.partitions()]
    with opened(golden, root) as logs:
        for topic, partition in places:
            logs.append(topic, [("key", "ours")], partition=partition)
    with opened(golden, root) as logs:
        for topic, partition in places:
            end = golden.log_end_offset(topic, partition)
            read = logs.read(topic, partition, start=end, isolation="read_uncommitted")
            (record,) = read.records()
            assert (record.offset, record.key, record.value) == (end, b"key", b"ours")
        kept = [row for row in read_rows(logs, "read_uncommitted") if row[7] != b"ours"]
        assert kept == expected_rows(golden, committed=False)


def test_checkpoints_and_identity_of_kafka_are_taken_over(tmp_path):
    golden = golden_set("v2-multi-dir")
    root = copied(golden, tmp_path)
    metas = [(root / name / "meta.properties").read_bytes() for name in ("data-a", "data-b")]
    with opened(golden, root) as logs:
        logs.append("letters.v1", ["ours"])
    assert metas == [
        (root / name / "meta.properties").read_bytes() for name in ("data-a", "data-b")
    ]
    points: dict[TopicPartition, int] = {}
    for name in ("data-a", "data-b"):
        points |= offsets_in(root / name / "recovery-point-offset-checkpoint")
    assert points[TopicPartition("letters.v1", 0)] == 44
    assert points[TopicPartition("orders.grove-6", 2)] == 35


def test_corruption_in_the_middle_is_told_after_what_stands_before_it(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        for n in range(10):
            logs.append("a", [f"{n}" * 50])
    path = tmp_path / "a-0" / LOG
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 80] ^= 1
    path.write_bytes(data)
    with stratalog.open(tmp_path) as logs:  # after an orderly stop nobody looks
        seen: list[bytes | None] = []
        with pytest.raises(CorruptionError, match="CRC") as caught:
            seen.extend(record.value for record in logs.read("a").records())
        assert caught.value.path == str(path)
        assert caught.value.position == len(data) // 2
        assert seen == [f"{n}".encode() * 50 for n in range(5)]
        pytest.importorskip("pyarrow")
        rows = 0
        with pytest.raises(CorruptionError):  # noqa: PT012
            for batch in logs.read("a"):
                rows += batch.num_rows
        assert rows == 5
    with stratalog.open(tmp_path) as logs:
        seen += [record.value for record in logs.read("a", end=5).records()]
    assert seen[-5:] == [f"{n}".encode() * 50 for n in range(5)]
    assert list(tmp_path.rglob("*.tmp")) == []
