"""A raised offset of the very last batch: no CRC covers it, and only a clean shutdown contradicts it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.inspect.count.partition import count_partition, tally
from stratalog.inspect.partition.ends import PartitionEnds, partition_ends
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.offset_range import parse_offsets
from stratalog.inspect.range.plan import plan_range
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.names import RECOVERY_CHECKPOINT
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.clean_end import LastBatch, find_excess
from tests.cli.runner import run

REASON = "end_beyond_recovery_point"
TIME = 1_700_000_000_000
END = 12
RAISED = 64


@pytest.fixture
def root(tmp_path):
    """A directory that was shut down cleanly: four batches of three records."""
    return make(tmp_path / "logs")


def make(root):
    with stratalog.open(str(root)) as logs:
        logs.create("orders", 1)
        for number in range(4):
            append(logs, number)
    return root


def append(logs, number):
    rows = [{"value": b"%d" % n, "timestamp": TIME + 10 * number} for n in range(3)]
    logs.append("orders", rows)


def last_batch(path):
    at, data = 0, path.read_bytes()
    while (size := 12 + int.from_bytes(data[at + 8 : at + 12], "big")) + at < len(data):
        at += size
    return at


def log_of(root):
    (path,) = (root / "orders-0").glob("*.log")
    return path


def raise_offset(root):
    path = log_of(root)
    data = bytearray(path.read_bytes())
    data[last_batch(path) + 7] ^= RAISED
    path.write_bytes(data)
    return path


def source_of(root):
    (source,) = find_sources(str(root)).partitions
    return source


def offsets_of(root, **options):
    return stratalog.scan(str(root), columns=["offset"], **options).to_table()["offset"].to_pylist()


def read_only(root):
    with stratalog.open(str(root), read_only=True) as logs:
        return [record.offset for record in logs.read("orders").records()]


def write(root):
    with stratalog.open(str(root)) as logs:
        append(logs, 9)


def ends(root):
    damage = partition_ends(source_of(root)).damage
    if damage is not None:
        raise damage


def count(root):
    (counted,) = count_partition(source_of(root)).segments
    if counted.status != "ok":
        raise counted.file.end.error()


def count_some(root):
    (counted,) = count_partition(source_of(root), parse_offsets("2:12", 0)).segments
    if counted.status != "ok":
        raise counted.file.end.error()


READERS = {
    "scan": offsets_of,
    "scan of a part": lambda root: offsets_of(root, start=2, end=END),
    "scan of what is committed": lambda root: offsets_of(root, isolation="read_committed"),
    "plan": lambda root: plan_range(source_of(root)),
    "plan up to the end": lambda root: plan_range(source_of(root), 0, END),
    "ends": ends,
    "time look-up": lambda root: offset_for_time(source_of(root), TIME + 30),
    "count": count,
    "count of a part": count_some,
    "read-only open": read_only,
    "writing open": write,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_reader_refuses_raised_offset_of_last_batch(root, reader):
    reader(Path(shutil.copytree(root, root.parent / "sound")))
    path = raise_offset(root)
    with pytest.raises(CorruptionError) as caught:
        reader(root)
    error = caught.value
    assert (error.reason, error.path, error.position) == (REASON, str(path), last_batch(path))
    assert f"offset {END + RAISED}" in error.detail
    assert f"ends at {END}" in error.detail
    assert "restore" in (error.advice or "")


@pytest.mark.parametrize("verb", ["cat", "count", "ls", "verify"])
def test_command_refuses_raised_offset_of_last_batch(root, verb):
    raise_offset(root)
    done = run(verb, root)
    assert done.code == 1
    assert REASON in done.err + done.out.decode()


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("missing", [".kafka_cleanshutdown", RECOVERY_CHECKPOINT])
def test_nothing_is_compared_without_clean_shutdown(root, missing, reader):
    """Beside a running writer the marker is gone, and the recovery point lies anywhere below the end."""
    (root / RECOVERY_CHECKPOINT).write_text("0\n1\norders 0 3\n")
    (root / missing).unlink()
    reader(root)


def test_folder_copied_alone_is_not_compared(root, tmp_path):
    raise_offset(root)
    alone = Path(shutil.copytree(root / "orders-0", tmp_path / "orders-0"))
    assert offsets_of(alone)[-1] == END + RAISED - 1


def test_records_that_a_writer_appends_meanwhile_are_read(root):
    """The clean shutdown was seen before a writer began; what it appends lies beyond, and is no damage."""
    source = source_of(root)
    scanned = stratalog.scan(str(root), columns=["offset"])
    logs = stratalog.open(str(root))
    append(logs, 5)
    try:
        assert partition_ends(source).end == END + 3
        assert tally(count_partition(source).segments).records == END + 3
        assert plan_range(source).end == END + 3
        assert scanned.to_table()["offset"].to_pylist() == list(range(END + 3))
    finally:
        logs.close()


def test_skipping_leaves_out_the_last_batch_and_lists_it(root):
    path = raise_offset(root)
    scanned = stratalog.scan(str(root), columns=["offset"], on_damage="skip")
    assert scanned.to_table()["offset"].to_pylist() == list(range(END - 3))
    (skipped,) = scanned.skipped
    assert (skipped.path, skipped.position) == (str(path), last_batch(path))
    assert (skipped.reason, skipped.start_offset, skipped.resume_offset) == (REASON, END - 3, None)


def test_count_leaves_out_the_last_batch(root):
    raise_offset(root)
    counted = count_partition(source_of(root), every_segment=True, times=True)
    assert (tally(counted.segments).records, counted.end_offset) == (END - 3, END - 3)


def test_read_up_to_the_last_batch_is_no_error(root):
    raise_offset(root)
    assert plan_range(source_of(root), 0, END - 3).end == END - 3
    with stratalog.open(str(root), read_only=True) as logs:
        read = logs.read("orders", end=END - 3).records()
        assert [record.offset for record in read] == list(range(END - 3))


def test_refused_log_is_refused_again_by_the_next_writer(root):
    raise_offset(root)
    for _ in range(2):
        with stratalog.open(str(root)) as logs, pytest.raises(CorruptionError, match=REASON):
            logs.partition("orders", 0)


def test_cut_truncates_the_last_batch_and_keeps_it(root):
    path = raise_offset(root)
    position, whole = last_batch(path), path.read_bytes()
    with stratalog.open(str(root), on_damage="cut") as logs:
        assert logs.partition("orders", 0).log_end == END - 3
        (report,) = logs.recovery.values()
    (cut,) = report.cuts
    assert (cut.position, cut.reason, cut.from_offset) == (position, REASON, END - 3)
    assert Path(cut.kept_as or "").read_bytes() == whole[position:]
    assert offsets_of(root) == list(range(END - 3))


def test_checkpoint_is_read_once_for_a_directory(tmp_path):
    with stratalog.open(str(tmp_path / "logs")) as logs:
        logs.create("orders", 5, {"internal.segment.bytes": 200})
        for number in range(40):
            logs.append("orders", [b"%d" % number], partition=number % 5)
    opened: Counter[str] = Counter()

    class Counting(OsFileSystem):
        def open_readable(self, path):
            opened[Path(path).name] += 1
            return super().open_readable(path)

    table = stratalog.scan(str(tmp_path / "logs"), file_system=Counting()).to_table()
    assert (table.num_rows, opened[RECOVERY_CHECKPOINT]) == (40, 1)


@pytest.mark.parametrize(
    ("last", "recovery_point", "is_found"),
    [
        (LastBatch(7, 10, 13, 9), 12, True),
        (LastBatch(7, 9, 13, 9), 12, False),  # no gap: something has appended to the log
        (LastBatch(7, 9, 12, 9), 12, False),
        (LastBatch(7, 10, 12, 9), 12, False),  # a gap that compaction left
        (LastBatch(7, 10, 11, 9), 12, False),  # records are missing: what ``verify`` finds
        (LastBatch(7, 10, 13, 9), None, False),
        (LastBatch(7, 10, 13, 9), -1, False),
    ],
)
def test_comparison(last, recovery_point, is_found):
    found = find_excess("x.log", last, recovery_point)
    assert (found is not None) is is_found


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_another_program_appended_after_the_shutdown_is_no_damage(root, reader):
    """It lies beyond the recovery point, and follows the batch before it without a gap."""
    log = PartitionLog.open(str(root / "orders-0"))
    log.append(build_batch([Record(b"more", timestamp=TIME + 50)]), sync=True)
    log.close()
    reader(root)
    assert offsets_of(root)[: END + 1] == list(range(END + 1))


def test_verify_notes_what_another_program_appended(root):
    log = PartitionLog.open(str(root / "orders-0"))
    log.append(build_batch([Record(b"more", timestamp=TIME + 50)]), sync=True)
    log.close()
    done = run("verify", root)
    assert done.code == 0
    found = [each for row in done.rows() for each in row["findings"]]
    assert [(each["severity"], each["reason"]) for each in found] == [("note", REASON)]


def test_empty_segment_of_a_log_whose_start_was_raised(tmp_path):
    """Kafka leaves a recovery point of 0 beside a log that starts, and ends, at a higher offset."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{50:020d}.log").touch()
    (tmp_path / RECOVERY_CHECKPOINT).write_text("0\n1\norders 0 0\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert offsets_of(tmp_path) == []
    assert partition_ends(source_of(tmp_path)) == PartitionEnds(50, 50)
    assert run("verify", tmp_path).code == 0


def test_raised_offset_is_refused_beside_an_index_that_cannot_be_read(root):
    path = raise_offset(root)
    index = path.with_suffix(".index")
    index.unlink(missing_ok=True)
    index.mkdir()
    with pytest.raises(CorruptionError, match=REASON):
        offsets_of(root)


def open_partition(root):
    with stratalog.open(str(root)) as logs:
        logs.partition("orders", 0)


@pytest.mark.parametrize("way", ["scan", "open"])
def test_advice_for_a_folder_that_was_copied_without_its_log_directory(root, way):
    """The recovery point is of an earlier state: the last batch is sound, and a gap before it is legal."""
    raise_offset(root)  # stands for a log that was compacted elsewhere
    ways = {"scan": offsets_of, "open": open_partition}
    with pytest.raises(CorruptionError, match=REASON) as caught:
        ways[way](root)
    advice = caught.value.advice or ""
    restore, copied = advice.split(
        "; or, if the folder was written or copied without its log directory, "
    )
    assert "restore the segment" in restore
    assert ("on_damage='cut'" in restore) == (way == "open")
    assert "on_damage='cut'" not in copied
    assert "remove the line of the partition from recovery-point-offset-checkpoint" in copied
    checkpoint = root / "recovery-point-offset-checkpoint"
    version, count, *lines = checkpoint.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("orders 0 ")]
    assert len(kept) == int(count) - 1
    checkpoint.write_text("\n".join([version, str(len(kept)), *kept, ""]))
    found = [*range(END - 3), *range(RAISED + END - 3, RAISED + END)]
    assert offsets_of(root) == found
    with stratalog.open(str(root)) as logs:
        assert [record.offset for record in logs.read("orders").records()] == found
