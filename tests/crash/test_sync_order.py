"""Things reach the disk in the right order: the log before what points into it, all of it before what relies
on it.

Method: scenarios run on a disk that is watched; at each sync and each new segment it is looked at what is
durable already.
"""

from __future__ import annotations

import pytest

from stratalog.storage.names import FileKind, Stage, parse_partition_file, segment_file_name
from stratalog.testing import Change, ChangeKind, Facts, MemoryFileSystem
from tests.crash.driver import FOLDER, new_disk
from tests.crash.scenarios import SCENARIOS

INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


def check_sync_order(name: str) -> None:
    disk = new_disk()
    disk.watcher = Watcher(disk)
    SCENARIOS[name].runs()(disk, Facts())


class Watcher:
    def __init__(self, disk: MemoryFileSystem) -> None:
        self.disk = disk

    def __call__(self, change: Change) -> None:
        folder, _, name = change.path.rpartition("/")
        file = parse_partition_file(name)
        if folder != FOLDER or file is None or file.stage != Stage.LIVE:
            return
        if change.kind is ChangeKind.SYNC and file.kind in INDEXES:
            log = segment_file_name(file.offset, FileKind.LOG)
            assert self.is_synced(log), f"{name} is synced before {log}"
        if change.kind is ChangeKind.CREATE and file.kind is FileKind.LOG:
            # A sealed segment is on the disk, and so is the state of the producers behind it.
            for entry in self.disk.list_dir(FOLDER):
                before = parse_partition_file(entry.name)
                if before is not None and before.stage == Stage.LIVE:
                    is_due = before.kind is FileKind.LOG or before.kind in INDEXES
                    if is_due or before.offset == file.offset:
                        assert self.is_synced(entry.name), (
                            f"{entry.name} is not synced before {name}"
                        )

    def is_synced(self, name: str) -> bool:
        return self.disk._file(f"{FOLDER}/{name}").is_synced


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_log_is_synced_before_what_points_into_it(name: str) -> None:
    check_sync_order(name)
