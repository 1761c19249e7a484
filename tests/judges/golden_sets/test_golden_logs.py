"""Every golden partition opened as a log: it reads as Kafka's client read it, answers as the broker did, and
what recovery makes anew are the files that Kafka has.

A copy is opened, after an orderly stop and through recovery, with the topic's own configs. 0.7's files are
not partitions of this kind.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import DamagedLogError
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.testing.clock import ManualClock
from tests.judges.peers.golden import GoldenPartition, GoldenSet, decoded, golden_sets
from tests.storage.logs import records

FOR_EVER = 2**62
Case = tuple[GoldenSet, GoldenPartition]

#: Broker's configs that topics of 4.3 have no more, or not so small.
_OLD_NAMES = {"message.format.version"}


def cases(*, recovered: bool) -> list[Case]:
    """All partitions that were stopped in order, or that Kafka recovered and then stopped; or those that
    were killed and then, maybe, damaged."""
    found: list[Case] = []
    for golden in golden_sets():
        if golden.is_v07:
            continue
        killed = bool(golden.recovered())
        if recovered or not killed:
            found += [(golden, each) for each in golden.recovered() or golden.partitions()]
        else:
            found += [(golden, each) for each in golden.partitions()]
    return found


WHOLE = cases(recovered=True)
KILLED = [case for case in cases(recovered=False) if case[0].recovered()]


def name_of(case: Case) -> str:
    golden, partition = case
    return f"{golden.name}/{partition.topic}-{partition.partition}"


each_whole = pytest.mark.parametrize("case", WHOLE, ids=map(name_of, WHOLE))
each_killed = pytest.mark.parametrize("case", KILLED, ids=map(name_of, KILLED))


def config_of(golden: GoldenSet, topic: str) -> LogConfig:
    about = golden.about["topics"].get(topic, {})
    given = about.get("config") or about.get("settings") or {}
    configs = {name: value for name, value in given.items() if name not in _OLD_NAMES}
    if int(configs.get("segment.bytes", 1 << 30)) < 1 << 20:
        configs["internal.segment.bytes"] = configs.pop("segment.bytes")
    return LogConfig.of(configs)


def open_copy(case: Case, folder: Path, **how: Any) -> PartitionLog:
    golden, partition = case
    if not folder.exists():
        shutil.copytree(partition.dir, folder)
    return PartitionLog.open(
        str(folder),
        config_of(golden, partition.topic),
        clock=ManualClock(),
        log_start=golden.log_start_offset(partition.topic, partition.partition),
        producer_ttl_ms=FOR_EVER,
        **how,
    )


def read_rows(log: PartitionLog, isolation: Isolation) -> list[dict[str, Any]]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(record.timestamp_type),
            "key": record.key,
            "value": record.value,
            "headers": tuple((header.key, header.value) for header in record.headers),
        }
        for record in records(log, None, isolation)
    ]


def expected_rows(case: Case, *, committed: bool = False) -> list[dict[str, Any]]:
    golden, partition = case
    return [
        {name: value for name, value in decoded(row).items() if name not in ("topic", "partition")}
        for row in golden.expected(committed=committed)
        if (row["topic"], row["partition"]) == (partition.topic, partition.partition)
    ]


# --- records -------------------------------------------------------------------------------------


@each_whole
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_a_log_reads_as_kafkas_client_read_it(case: Case, tmp_path: Path, is_clean: bool) -> None:
    golden, partition = case
    end = golden.log_end_offset(partition.topic, partition.partition)
    log = open_copy(case, tmp_path / "log", is_clean=is_clean, recovery_point=end * is_clean)
    assert log.log_end == end
    assert log.log_start == golden.log_start_offset(partition.topic, partition.partition)
    assert log.report.cuts == []
    assert bool(log.report.recovered_segments) != is_clean or lacks_indexes(partition)
    log.advance_high_watermark(end)
    want = expected_rows(case)
    assert read_rows(log, Isolation.UNCOMMITTED) == want
    assert read_rows(log, Isolation.LOG_END) == want
    if golden.has_committed:
        assert read_rows(log, Isolation.COMMITTED) == expected_rows(case, committed=True)
    for segment in partition.segments:
        assert (tmp_path / "log" / segment.name).read_bytes() == segment.read_bytes()
    log.close()


def lacks_indexes(partition: GoldenPartition) -> bool:
    """Brokers before 0.10.1 wrote no time index: such segments are recovered though the stop was clean."""
    return any(not path.with_suffix(".timeindex").exists() for path in partition.segments)


@each_whole
def test_small_reads_from_every_offset_find_the_same(case: Case, tmp_path: Path) -> None:
    """A read of one byte gives the batch that holds the offset, wherever one begins."""
    log = open_copy(case, tmp_path / "log", is_clean=True)
    want = records(log)
    for offset in range(log.log_start, log.log_end, max((log.log_end - log.log_start) // 40, 1)):
        got = records(log, offset, max_bytes=1)[:5]
        assert got == [record for record in want if record.offset >= offset][:5]
    log.close()


# --- what the broker answered --------------------------------------------------------------------


# The brokers of the old sets were not asked.
ASKED = [case for case in WHOLE if (case[0].path / "list-offsets.jsonl").exists()]


@pytest.mark.parametrize("case", ASKED, ids=map(name_of, ASKED))
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_list_offsets_answers_as_the_broker_did(case: Case, tmp_path: Path, is_clean: bool) -> None:
    golden, partition = case
    log = open_copy(case, tmp_path / "log", is_clean=is_clean)
    log.advance_high_watermark(log.log_end)
    asked = 0
    for line in (golden.path / "list-offsets.jsonl").read_text().splitlines():
        row = json.loads(line)
        if (row["topic"], row["partition"]) != (partition.topic, partition.partition):
            continue
        asked += 1
        assert list_offset(log, row["query"], row["isolation"]) == (
            row["offset"],
            row["timestamp"],
        ), row
    assert asked or partition.topic.startswith("__")
    log.close()


def list_offset(log: PartitionLog, query: str | int, isolation: str) -> tuple[int, int]:
    """What a broker answers: a record that a reader of this isolation may not see yet is none."""
    bound = log.view.bound(Isolation(isolation))
    if query == "earliest":
        return log.log_start, -1
    if query == "latest":
        return bound, -1
    if isinstance(query, int):
        found = log.offset_for_time(query)
    else:
        assert query == "max_timestamp"
        found = log.offset_of_largest_time()
    if found is None or found.offset >= bound:
        return -1, -1
    return found.offset, found.timestamp


# --- files ---------------------------------------------------------------------------------------

#: Whose index rules are not 4.3's: 0.8 to 0.10 write the first offset of an append, 2.8 its last.
OLD_RULES = ("v0-", "v1-", "mixed")
#: Files that recovery makes otherwise than the broker did that wrote them, and why.
OTHERWISE = {
    # Batches that compaction or retention took were known to the producers' state, and so were the
    # transactions that they belonged to.
    "v2-compacted/Invoices_tundra-0": {"snapshot"},
    "v2-compacted/clicks-0": {"snapshot", "txnindex"},
    "v2-compact-delete/profiles-0": {"snapshot"},
    # The counter of bytes since the last entry begins anew with every start of the broker, and old
    # timestamps made producers expire then.
    "v2-leader-epochs/Accounts_island-0": {"index", "timeindex", "snapshot"},
}


RULED = [case for case in WHOLE if not case[0].name.startswith(OLD_RULES)]


@pytest.mark.parametrize("case", RULED, ids=map(name_of, RULED))
def test_recovery_makes_the_files_that_kafka_has(case: Case, tmp_path: Path) -> None:
    _, partition = case
    folder = tmp_path / "log"
    log = open_copy(case, folder)
    assert log.report.recovered_segments == [int(path.stem) for path in partition.segments]
    log.close()
    otherwise = OTHERWISE.get(name_of(case), set())
    want, got = loaded_files(case), files_of(folder)
    assert {kind_of(name) for name in differing(want, got)} == otherwise
    if not otherwise:
        assert sorted(got) == sorted(want)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def loaded_files(case: Case) -> dict[str, bytes]:
    """The files of a partition without those that every start does away with, Kafka's too: what was
    deleted, snapshots of no segment, those below the log's start, epochs that wrote nothing."""
    golden, partition = case
    files = {n: data for n, data in files_of(partition.dir).items() if not n.endswith(".deleted")}
    bases = {int(path.stem) for path in partition.segments}
    taken = {int(Path(name).stem): name for name in files if name.endswith(".snapshot")}
    start = golden.log_start_offset(partition.topic, partition.partition)
    for offset, name in taken.items():
        is_last = offset == max(taken) and offset > max(bases)
        if offset < start or not (offset in bases or is_last):
            del files[name]
    epochs = files.get("leader-epoch-checkpoint")
    if epochs:
        end = golden.log_end_offset(partition.topic, partition.partition)
        lines = [line for line in epochs.decode().splitlines()[2:] if int(line.split()[1]) < end]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        files["leader-epoch-checkpoint"] = text.encode()
    return files


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """The files that are not the same, or not there."""
    return {name for name, data in before.items() if after.get(name) != data}


def kind_of(name: str) -> str:
    return Path(name).suffix.removeprefix(".") or name


@each_whole
def test_a_clean_open_and_close_changes_nothing(case: Case, tmp_path: Path) -> None:
    """Nor does reading it. Before 0.11 there were no snapshots, before 0.10.1 no time indexes."""
    golden, partition = case
    folder = tmp_path / "log"
    log = open_copy(case, folder, is_clean=True)
    log.advance_high_watermark(log.log_end)
    read_rows(log, Isolation.COMMITTED)
    log.close()
    want, got = loaded_files(case), files_of(folder)
    changed = {kind_of(name) for name in differing(want, got)}
    added = {kind_of(name) for name in got.keys() - want.keys()}
    if golden.name.startswith("v2-"):
        assert (changed, added) == (set(), set())
    else:
        assert changed <= ({"index"} if lacks_indexes(partition) else set())
        assert added <= {"snapshot", "timeindex", "leader-epoch-checkpoint"}


# --- killed --------------------------------------------------------------------------------------


@each_killed
def test_a_killed_log_is_recovered_to_where_kafka_recovers_it(case: Case, tmp_path: Path) -> None:
    golden, partition = case
    folder = tmp_path / "log"
    shutil.copytree(partition.dir, folder)
    point = recovery_point(golden, partition)
    how: dict[str, Any] = {"recovery_point": point}
    if name_of(case) == "v2-torn/nectar-payments-1":  # a bit flipped in the middle
        with pytest.raises(DamagedLogError, match="crc_mismatch"):
            open_copy(case, folder, **how)
        how["on_damage"] = "cut"
    log = open_copy(case, folder, **how)
    (kafkas,) = [
        each
        for each in golden.recovered()
        if (each.topic, each.partition) == (partition.topic, partition.partition)
    ]
    assert log.log_end == golden.log_end_offset(partition.topic, partition.partition)
    assert read_rows(log, Isolation.LOG_END) == expected_rows(case)
    log.close()
    ours = files_of(folder)
    for cut in log.report.cuts:
        if cut.kept_as is not None:
            data = ours.pop(Path(cut.kept_as).name)
            if cut.position == 0:  # Kafka deletes whole segments after a cut, and we keep them
                ours[f"{Path(cut.path).name}.deleted"] = data
    theirs = files_of(kafkas.dir)
    # Kafka's leader began a new epoch behind the recovered end.
    epochs = "leader-epoch-checkpoint"
    assert ours.pop(epochs) == loaded_files((golden, kafkas))[epochs]
    theirs.pop(epochs)
    assert sorted(ours) == sorted(theirs)
    assert differing(theirs, ours) == set()


def recovery_point(golden: GoldenSet, partition: GoldenPartition) -> int:
    lines = (golden.path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    for line in lines:
        topic, number, offset = line.rsplit(" ", 2)
        if (topic, int(number)) == (partition.topic, partition.partition):
            return int(offset)
    return 0
