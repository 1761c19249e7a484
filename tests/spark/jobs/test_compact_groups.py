"""Groups of segments, each compacted by itself, as the cleaner compacts them one after the other: the tasks
of the job without Spark, whose shuffle is a dictionary here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from stratalog.errors import CorruptionError, StorageError
from stratalog.manager.commits.replace import GroupSwaps
from stratalog.rewrite.compact.clean import (
    CleanerSettings,
    UnstoredCheckpoint,
    clean_log,
    find_cleanable,
    planned_groups,
)
from stratalog.rewrite.compact.plan import plan_remote_cleaning
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.plan import RewritePlan
from stratalog.spark.jobs.rewriting.compacting import (
    _Detail,
    _keys_to_read,
    compact_group,
    plan_groups_to_compact,
)
from stratalog.spark.jobs.rewriting.key_rows import GroupFound, keys_of_segments, store_found
from stratalog.spark.jobs.rewriting.staged_group import GroupDone, Staging
from stratalog.spark.jobs.rewriting.work import PartitionOutcome, PartitionPlan
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import MemoryFileSystem
from stratalog.types import TopicPartition
from tests.rewrite.compact.workloads import FOLDER, Workload, clock_of, new_disk, open_log
from tests.scale import SCALE, fresh, sized

Counted = Callable[[str, object], None]
ROOT = "/data"
KEY = CommitKey("job", 0)
T0 = TopicPartition("t", 0)
DAY_MS = 86_400_000


def plan(log: PartitionLog, cleanable: CleanableLog) -> PartitionPlan:
    """What the driver knows before the tasks run."""
    view, config = log.view, log.config
    groups = planned_groups(view, config, cleanable, cleanable.first_uncleanable)
    cleaning = plan_remote_cleaning(
        view, config, cleanable, groups, log.producers, log.clock.now_ms()
    )
    shown = RewritePlan("compact", cleanable.first_uncleanable, tuple(groups), ())
    detail = _Detail(cleaning, log.index_limits)
    return PartitionPlan(T0, ROOT, FOLDER, shown, detail, 0, 0)


def shuffle(staging: Staging, plans: Sequence[PartitionPlan]) -> dict[int, GroupFound]:
    """What Spark finds: the newest offset of each key, and the offsets below it by group."""
    keys = _keys_to_read(plans)
    numbers = [pa.RecordBatch.from_pydict({"id": list(range(len(keys)))})]
    rows = [
        row
        for batch in keys_of_segments(staging, [[each] for each in keys], numbers)
        for row in batch.to_pylist()
    ]
    newest: dict[tuple[int, ...], int] = {}
    for row in rows:
        key = (row["part"], row["is_event"], row["first"], row["second"])
        newest[key] = max(row["dirty"], newest.get(key, -1))
        row["key"] = key
    left = [row for row in rows if row["is_event"] or row["off"] < newest[row["key"]]]
    left.sort(key=lambda row: (row["grp"], row["is_event"], row["off"]))
    found = {}
    for batch in store_found(staging, batches(left)):
        for row in batch.to_pylist():
            found[row["grp"]] = GroupFound.from_row(row)
    return found


def batches(rows: Sequence[Any], size: int = 7) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them over: some at a time, wherever a group ends."""
    fields = [("grp", pa.int32()), ("is_event", pa.int32())]
    schema = pa.schema([*fields, *((name, pa.int64()) for name in ("first", "second", "off"))])
    for at in range(0, len(rows), size):
        some = [{name: row[name] for name in schema.names} for row in rows[at : at + size]]
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def compact_in_groups(log: PartitionLog, cleanable: CleanableLog) -> list[GroupDone]:
    """Plan, shuffle, rewrite every group by itself, the last first, and put all in their places."""
    staging = Staging(ROOT, KEY, file_system=log.file_system)
    planned = plan(log, cleanable)
    groups = plan_groups_to_compact([planned], shuffle(staging, [planned]))
    done = []
    for group in reversed(groups):
        result = compact_group(staging, group)
        assert isinstance(result, GroupDone), result
        done.append(result)
    outcome = PartitionOutcome(planned, planned.shown, done, planned.detail.cleaning.end)
    replaced = outcome.replacement()
    if replaced is not None:
        swaps = GroupSwaps(
            ROOT, log.file_system, lambda _: log,
            on_replaced=lambda log: None, store_cleaned=lambda *_: None,
        )  # fmt: skip
        found = swaps.check([replaced], 1)
        for each in found[T0]:
            assert swaps._swap(log, each)
    return done


def files_of(disk: MemoryFileSystem) -> dict[str, tuple[bytes, int]]:
    """All files of the folder, with their times."""
    found = {}
    for path in disk.paths():
        if path.startswith(FOLDER) and not path.endswith(".deleted"):
            stat = disk.stat(path)
            assert stat is not None
            found[path] = (disk.read_bytes(path), stat.modified_ms)
    return found


def cleanable_of(log: PartitionLog, checkpoint: int | None) -> CleanableLog:
    return find_cleanable(log.view, log.config, checkpoint=checkpoint, now_ms=log.clock.now_ms())


@pytest.mark.scaled
def test_groups_compacted_by_themselves_are_what_the_cleaner_makes(
    record_property: Counted,
) -> None:
    compared = groups = 0
    for seed in range(sized(8, 60 * SCALE)):
        workload, disk = Workload(fresh(seed)), new_disk()
        checkpoint = None
        for number in range(4):
            log = open_log(disk, workload.config)
            workload.run(log, 25)
            if number % 2:
                workload.end_all(log)
            log.close()
            disk.sync_all()
            twin = disk.fork()
            clock_of(twin).advance(clock_of(disk).now_ms() - clock_of(twin).now_ms())
            ours, other = open_log(disk, workload.config), open_log(twin, workload.config)
            cleanable = cleanable_of(ours, checkpoint)
            if cleanable.first_dirty < cleanable.first_uncleanable:
                settings, limits = CleanerSettings(), RewriteLimits(clock=twin.clock)
                now_ms = twin.clock.now_ms()
                stored = UnstoredCheckpoint(other, checkpoint, now_ms=now_ms)
                result = clean_log(other, stored, settings, limits, now_ms=now_ms)
                assert result is not None
                assert result.end_offset == cleanable.first_uncleanable
                groups += len(compact_in_groups(ours, cleanable))
                checkpoint = result.end_offset
                compared += 1
            for each in (ours, other):
                each.close()
                each.remove_due(all_of_them=True)
            for path in list(disk.paths()):
                if "stratalog-piece" in path:
                    disk.unlink(path)
            assert files_of(disk) == files_of(twin), f"seed {seed}, round {number}"
            clock_of(disk).advance(workload.random.choice([1, 1000, DAY_MS // 4]))
    record_property("counted: cleanings whose groups were rewritten apart, byte for byte", compared)
    assert groups > compared, "there were several groups"


def test_a_damaged_segment_is_an_error_of_its_partition() -> None:
    log, disk = filled()
    path = f"{FOLDER}/{log.segments[1].base_offset:020d}.log"
    data = bytearray(disk.read_bytes(path))
    data[-1] ^= 1
    disk.open_writable(path).write_at(0, data)
    staging = Staging(ROOT, KEY, file_system=disk)
    planned = plan(log, cleanable_of(log, None))
    groups = plan_groups_to_compact([planned], shuffle(staging, [planned]))
    results = [compact_group(staging, group) for group in groups]
    assert [type(each) for each in results] == [CorruptionError], "the others are not rewritten"
    assert str(results[0]).startswith(path)
    outcome = PartitionOutcome(planned, planned.shown)
    for each in results:
        if isinstance(each, GroupDone):
            outcome.groups.append(each)
        else:
            outcome.error = each
    assert outcome.replacement() is None
    assert outcome.report().error is outcome.error


def test_a_segment_that_was_replaced_since_the_plan_is_refused() -> None:
    log, disk = filled()
    staging = Staging(ROOT, KEY, file_system=disk)
    planned = plan(log, cleanable_of(log, None))
    groups = plan_groups_to_compact([planned], shuffle(staging, [planned]))
    compact_in_groups(log, cleanable_of(log, None))
    before = set(disk.paths())
    with pytest.raises(StorageError, match="changed since the rewrite was planned"):
        compact_group(staging, groups[0])
    assert set(disk.paths()) == before, "nothing is left of the attempt"


def filled() -> tuple[PartitionLog, MemoryFileSystem]:
    workload, disk = Workload(3), new_disk()
    log = open_log(disk, workload.config)
    workload.run(log, 60)
    workload.end_all(log)
    log.roll()
    assert len(log.segments) > 3
    return log, disk
