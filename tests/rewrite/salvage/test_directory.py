"""The new log directory: what is in it, what is refused, and what an interrupted salvage leaves."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StorageError, UsageError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.model import Record
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.salvage.directory import INCOMPLETE_SUFFIX, write_directory
from stratalog.rewrite.salvage.folders import find_folders
from stratalog.rewrite.salvage.incomplete import make_attempt, make_attempts, remove_attempts
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan, plan_salvage
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.names import DAMAGED_DIR
from stratalog.storage.segment.txn_index import decode_entries
from stratalog.testing import FaultyFileSystem
from tests.inspect.logs import batch, flipped
from tests.inspect.logs import segment as segment_in
from tests.judges.peers.golden import GOLDEN_DIR, golden_sets
from tests.rewrite.salvage.worlds import FILES, Unsynced, make_world, salvage, states_of, verify

WHOLE_SETS = sorted(each.name for each in golden_sets() if not each.name.startswith("v07"))


def segment(folder: Path, base_offset: int, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    segment_in(folder, base_offset, data)


def damaged_log(folder: Path) -> Path:
    segment(folder, 0, batch(0) + flipped(batch(3), 80) + batch(6))
    segment(folder, 9, batch(9))
    return folder / "orders-0"


def plan_of(folder: Path, *, with_leftovers: bool = False) -> SalvagePlan:
    return plan_salvage(FILES, str(folder), SalvageOptions(with_leftovers=with_leftovers))


def offsets_in(target: Path, topic: str = "orders") -> list[int]:
    logs = stratalog.open(target, read_only=True)
    try:
        return [row.offset for row in logs.read(topic, isolation="read_uncommitted").records()]
    finally:
        logs.close()


@pytest.mark.parametrize("name", WHOLE_SETS)
def test_a_golden_set_is_salvaged_as_it_is(tmp_path: Path, name: str) -> None:
    """What Kafka wrote has no damage, but for the torn set: every byte of every segment is kept."""
    for folder in find_folders(FILES, [str(each) for each in _roots(name)]):
        plan = plan_of(Path(folder.path))
        target = tmp_path / folder.topic_partition.topic / str(folder.topic_partition.partition)
        target.parent.mkdir(exist_ok=True)
        write_directory(FILES, [plan], str(target))
        if name == "v2-torn":
            continue
        assert not plan.has_losses
        for path in sorted(Path(folder.path).glob("*.log")):
            new = target / str(folder.topic_partition) / path.name
            data = path.read_bytes()
            assert new.read_bytes() == (data if not plan.ranges else data[: new.stat().st_size])
        assert verify(target) == []


def _roots(name: str) -> list[Path]:
    folder = GOLDEN_DIR / name
    inner = sorted(folder.glob("data-*"))
    return inner or [folder]


def test_every_golden_set_of_0_7_is_salvaged_as_it_is(tmp_path: Path) -> None:
    for name in ("v07-plain", "v07-gzip", "v07-snappy"):
        for folder in find_folders(FILES, [str(GOLDEN_DIR / name)]):
            plan = plan_of(Path(folder.path))
            write_directory(FILES, [plan], str(tmp_path / name))
            assert not plan.has_losses
            new = tmp_path / name / str(folder.topic_partition)
            for path in Path(folder.path).glob("*.kafka"):
                assert (new / path.name).read_bytes() == path.read_bytes()
            assert verify(tmp_path / name) == []


def test_torn_golden_set_keeps_what_kafka_saved_and_what_it_cut(tmp_path: Path) -> None:
    """Kafka truncated partition 1 at the flipped bit; the batches after it are intact."""
    root = GOLDEN_DIR / "v2-torn"
    plans = [plan_of(Path(each.path)) for each in find_folders(FILES, [str(root)])]
    before = states_of(root)
    write_directory(FILES, plans, str(tmp_path / "new"))
    assert states_of(root) == before
    kept = {plan.topic_partition.partition: plan.kept_records for plan in plans}
    saved: dict[int, int] = {}
    for line in (root / "expected.jsonl").read_text().splitlines():
        row = json.loads(line)
        saved[row["partition"]] = saved.get(row["partition"], 0) + 1
    assert kept[0] == saved[0]
    assert kept[2] == saved[2]
    assert kept[1] > saved[1]
    assert verify(tmp_path / "new") == []


def test_new_directory_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "old") as logs:
        logs.create("orders", 2, {"cleanup.policy": "compact"})
        for number in range(20):
            logs.append("orders", [{"value": b"v%d" % number, "key": b"k"}], partition=0)
    folders = find_folders(FILES, [str(tmp_path / "old")])
    plans = [plan_of(Path(each.path)) for each in folders]
    write_directory(FILES, plans, str(tmp_path / "new"))
    with stratalog.open(tmp_path / "new") as logs:
        assert logs.recovery == {}
        assert logs.topic("orders").config.overrides()["cleanup.policy"] == "compact"
        assert logs.append("orders", [{"value": b"next", "key": b"k"}], partition=0)
    assert offsets_in(tmp_path / "new") == list(range(21))
    assert verify(tmp_path / "new") == []


def test_a_segment_after_lost_offsets_is_named_by_the_first_of_them(tmp_path: Path) -> None:
    segment(tmp_path / "old", 0, batch(0) + flipped(batch(3), 80))
    segment(tmp_path / "old", 6, batch(6))
    plan = plan_of(tmp_path / "old/orders-0")
    write_directory(FILES, [plan], str(tmp_path / "new"))
    names = sorted(path.name for path in (tmp_path / "new/orders-0").glob("*.log"))
    assert names == ["00000000000000000000.log", "00000000000000000003.log"]
    assert verify(tmp_path / "new") == []


def test_a_log_of_which_nothing_is_intact_becomes_an_empty_one(tmp_path: Path) -> None:
    segment(tmp_path / "old", 40, b"\x07" * 500)
    plan = plan_of(tmp_path / "old/orders-0")
    assert plan.kept_records == 0
    assert [tuple(each) for each in plan.lost] == [(40, None)]
    write_directory(FILES, [plan], str(tmp_path / "new"))
    assert offsets_in(tmp_path / "new") == []
    assert verify(tmp_path / "new") == []


def test_gaps_of_a_log_without_damage_are_not_lost_offsets(tmp_path: Path) -> None:
    """Compaction may remove a single batch, also the last one of a segment."""
    segment(tmp_path / "old", 0, batch(0) + batch(3) + batch(9))
    segment(tmp_path / "old", 15, batch(15) + bytes(500))
    plan = plan_of(tmp_path / "old/orders-0")
    assert not plan.has_losses
    assert plan.kept_records == 12


# --- transactions --------------------------------------------------------------------------------


def test_a_transaction_whose_marker_is_lost_is_reported_as_open(tmp_path: Path) -> None:
    def records(offset: int, producer: int) -> bytes:
        options = BatchOptions(
            producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        return build_batch([Record(b"v"), Record(b"w")], options, base_offset=offset)

    def marker(kind: ControlType, offset: int, producer: int) -> bytes:
        return build_marker(
            kind, offset=offset, timestamp=5, producer_id=producer, producer_epoch=0,
            coordinator_epoch=0,
        )  # fmt: skip

    data = records(0, 7) + records(2, 8)
    data += flipped(marker(ControlType.COMMIT, 4, 7), 70) + marker(ControlType.ABORT, 5, 8)
    segment(tmp_path / "old", 0, data + batch(6))
    plan = plan_of(tmp_path / "old/orders-0")
    assert [tuple(each) for each in plan.open_transactions] == [(7, 0)]
    write_directory(FILES, [plan], str(tmp_path / "new"))
    folder = tmp_path / "new/orders-0"
    entries = decode_entries((folder / "00000000000000000000.txnindex").read_bytes(), 0)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in entries] == [
        (8, 2, 5)
    ]
    logs = stratalog.open(tmp_path / "new", read_only=True)
    assert [row.offset for row in logs.read("orders").records()] == []  # the open one is first
    logs.close()
    report = json.loads((folder / DAMAGED_DIR / "report.json").read_text())
    assert report["open_transactions"] == [{"producer_id": 7, "first_offset": 0}]


# --- leftovers -----------------------------------------------------------------------------------


def test_leftovers_are_listed_and_used_on_request(tmp_path: Path) -> None:
    folder = damaged_log(tmp_path / "old")
    (folder / "00000000000000000000.log.deleted").write_bytes(batch(0) + batch(3) + batch(6))
    plan = plan_of(folder)
    assert [each.name for each in plan.leftovers] == ["00000000000000000000.log.deleted"]
    assert [tuple(each) for each in plan.lost] == [(3, 6)]
    plan = plan_of(folder, with_leftovers=True)
    assert plan.lost == ()
    write_directory(FILES, [plan], str(tmp_path / "new"))
    assert offsets_in(tmp_path / "new") == list(range(12))
    report = json.loads((tmp_path / "new/orders-0" / DAMAGED_DIR / "report.json").read_text())
    assert report["leftovers"][0]["kept_records"] == 3


def test_a_decided_replacement_is_taken_as_a_load_would_finish_it(tmp_path: Path) -> None:
    segment(tmp_path / "old", 0, batch(0) + batch(3))
    folder = tmp_path / "old/orders-0"
    (folder / "00000000000000000000.log").rename(folder / "00000000000000000000.log.deleted")
    (folder / "00000000000000000000.log.swap").write_bytes(batch(3))
    plan = plan_of(folder)
    assert [(run.first, run.next) for run in plan.kept] == [(3, 6)]
    assert not plan.has_losses


def test_a_damaged_replacement_counts_as_a_leftover(tmp_path: Path) -> None:
    segment(tmp_path / "old", 0, batch(0) + batch(3))
    folder = tmp_path / "old/orders-0"
    (folder / "00000000000000000000.log.swap").write_bytes(flipped(batch(3), 9, 7))
    plan = plan_of(folder)
    assert [(run.first, run.next) for run in plan.kept] == [(0, 6)]
    assert "replacement" in plan.notes[0]


# --- refusals ------------------------------------------------------------------------------------


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    with pytest.raises(UsageError, match="not empty"):
        write_directory(FILES, [plan], str(tmp_path / "new"))
    (tmp_path / "new/file").unlink()
    write_directory(FILES, [plan], str(tmp_path / "new"))  # an empty one is fine


@pytest.mark.parametrize("target", ["old/new", "old/orders-0/new", "old", ""])
def test_a_target_in_the_original_or_around_it_is_refused(tmp_path: Path, target: str) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    with pytest.raises(UsageError, match="lie in each other"):
        write_directory(FILES, [plan], str(tmp_path / target))


def test_a_link_to_the_original_is_refused_as_target(tmp_path: Path) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    (tmp_path / "link").symlink_to(tmp_path / "old")
    with pytest.raises(UsageError, match="lie in each other"):
        write_directory(FILES, [plan], str(tmp_path / "link/new"))


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Full(OsFileSystem):
        def free_bytes(self, path: str) -> int | None:
            return 1000

    plan = plan_of(damaged_log(tmp_path / "old"))
    with pytest.raises(StorageError, match="1000 are free"):
        write_directory(Full(), [plan], str(tmp_path / "new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_folder_of_both_formats_is_refused(tmp_path: Path) -> None:
    folder = damaged_log(tmp_path / "old")
    (folder / "00000000000000000000.kafka").touch()
    with pytest.raises(UsageError, match=r"0\.7"):
        plan_of(folder)


def test_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a partition folder"):
        plan_of(tmp_path)


def test_a_segment_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = damaged_log(tmp_path / "old")
    (folder / "00000000000000000009.log").rename(tmp_path / "elsewhere")
    (folder / "00000000000000000009.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="link"):
        plan_of(folder)


def test_a_file_that_changed_since_the_plan_is_noticed(tmp_path: Path) -> None:
    folder = damaged_log(tmp_path / "old")
    plan = plan_of(folder)
    (folder / "00000000000000000009.log").write_bytes(flipped(batch(9), 80))
    with pytest.raises(StorageError, match="changed"):
        write_directory(FILES, [plan], str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


# --- interruptions -------------------------------------------------------------------------------


def test_an_interrupted_salvage_leaves_no_target_and_can_be_repeated(tmp_path: Path) -> None:
    world = make_world(tmp_path / "old", "v2-mixed", random.Random(5))
    world.store()
    before = states_of(tmp_path / "old")
    plan = plan_of(world.partition)
    calls = 0
    while True:
        calls += 1
        left = calls

        def is_stopped() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        try:
            write_directory(
                FILES, [plan], str(tmp_path / "new"), RewriteLimits(is_stopped=is_stopped)
            )
            break
        except RewriteStoppedError:
            assert not (tmp_path / "new").exists()
            assert (tmp_path / f"new{INCOMPLETE_SUFFIX}").is_dir()
    assert calls > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
    assert states_of(tmp_path / "old") == before
    assert verify(tmp_path / "new") == []


def test_a_disk_that_fails_at_any_call_leaves_a_complete_target_or_none(tmp_path: Path) -> None:
    folder = damaged_log(tmp_path / "old")
    plan = plan_of(folder)
    before = states_of(tmp_path / "old")
    write_directory(FILES, [plan], str(tmp_path / "expected"))
    expected = {name: data for name, (data, _) in states_of(tmp_path / "expected").items()}
    for number in range(1, 1000):
        files = FaultyFileSystem(OsFileSystem(), fail_at=number)
        try:
            write_directory(files, [plan], str(tmp_path / "new"))
        except StorageError:
            assert files.failed
        if (tmp_path / "new").exists():
            found = {name: data for name, (data, _) in states_of(tmp_path / "new").items()}
            assert found == expected, files.failed
            shutil.rmtree(tmp_path / "new")
        if not files.failed:
            break
    assert number > 50
    assert states_of(tmp_path / "old") == before


def test_an_incomplete_target_with_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    foreign = tmp_path / f"new{INCOMPLETE_SUFFIX}" / "orders-0" / "notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        write_directory(FILES, [plan], str(tmp_path / "new"))
    assert foreign.read_text() == "mine"


# --- attempts of tasks ---------------------------------------------------------------------------


def attempt_in(incomplete: Path) -> Path:
    """What a task that was killed leaves."""
    incomplete.mkdir()
    make_attempts(FILES, str(incomplete))
    attempt = Path(make_attempt(FILES, str(incomplete)))
    (attempt / "orders-0" / DAMAGED_DIR).mkdir(parents=True)
    (attempt / "orders-0/00000000000000000000.log").write_bytes(batch(0))
    (attempt / "orders-0" / DAMAGED_DIR / "00000000000000000000.0-5.bin").write_bytes(b"12345")
    return attempt


def test_attempts_of_an_interrupted_salvage_are_removed(tmp_path: Path) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    attempt_in(tmp_path / f"new{INCOMPLETE_SUFFIX}")
    write_directory(FILES, [plan], str(tmp_path / "new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
    assert not list((tmp_path / "new").rglob("*attempt*"))


@pytest.mark.parametrize("name", ["../notes.txt", "notes.txt", "orders-0/notes.txt"])
def test_a_foreign_file_among_attempts_is_left_alone(tmp_path: Path, name: str) -> None:
    plan = plan_of(damaged_log(tmp_path / "old"))
    attempt = attempt_in(tmp_path / f"new{INCOMPLETE_SUFFIX}")
    (attempt / name).write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        write_directory(FILES, [plan], str(tmp_path / "new"))
    assert (attempt / name).read_text() == "mine"
    assert (attempt / "orders-0/00000000000000000000.log").exists()


@pytest.mark.parametrize(("files", "is_removed"), [(5, True), (500, False)])
def test_an_attempt_that_still_writes_is_removed_again(
    tmp_path: Path, files: int, is_removed: bool
) -> None:
    attempt = attempt_in(tmp_path / "incomplete")
    left = files

    class Shared(Unsynced):
        def unlink(self, path: str) -> None:
            nonlocal left
            super().unlink(path)
            left -= 1
            if left > 0 and path.endswith(".log"):
                (attempt / f"orders-0/{left:020d}.log").touch()

    if is_removed:
        remove_attempts(Shared(), str(tmp_path / "incomplete"))
        assert list((tmp_path / "incomplete").iterdir()) == []
    else:
        with pytest.raises(StorageError, match="not empty"):
            remove_attempts(Shared(), str(tmp_path / "incomplete"))


# --- details -------------------------------------------------------------------------------------


def test_large_zeros_take_no_room_in_the_target(tmp_path: Path) -> None:
    world = make_world(tmp_path / "old", "v2-none", random.Random(1))
    name = max(world.files)
    world.files[name] += bytes(64 << 20)
    world.store()
    salvage(world, tmp_path / "new")
    (stored,) = (tmp_path / "new/orders-0" / DAMAGED_DIR).glob("*.bin")
    assert stored.stat().st_size == 64 << 20
    assert stored.stat().st_blocks * 512 < 1 << 20


def test_leader_epochs_of_the_checkpoint_are_kept_if_batches_agree(tmp_path: Path) -> None:
    segment(tmp_path / "old", 0, batch(0, leader_epoch=2) + flipped(batch(3, leader_epoch=4), 80))
    (tmp_path / "old/orders-0/leader-epoch-checkpoint").write_bytes(b"0\n2\n2 0\n4 3\n")
    plan = plan_of(tmp_path / "old/orders-0")
    write_directory(FILES, [plan], str(tmp_path / "new"))
    data = (tmp_path / "new/orders-0/leader-epoch-checkpoint").read_bytes()
    assert data == b"0\n1\n2 0\n"


def test_topic_id_comes_from_another_partition_if_its_file_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "old"
    shutil.copytree(GOLDEN_DIR / "v2-torn", root)
    metadata = root / "nectar-payments-1/partition.metadata"
    expected = metadata.read_bytes()
    metadata.write_bytes(b"\0" * 20)
    plans = [plan_of(Path(each.path)) for each in find_folders(FILES, [str(root)])]
    write_directory(FILES, plans, str(tmp_path / "new"))
    assert (tmp_path / "new/nectar-payments-1/partition.metadata").read_bytes() == expected
