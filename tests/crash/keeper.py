"""One partition in a log directory, kept as a manager keeps it: a lock, checkpoints, a clean-shutdown marker.

The least of a manager that recovery needs. Each step is a method of its own, so that a test can spoil it.
"""

from __future__ import annotations

from stratalog.clock import Clock
from stratalog.errors import CorruptionError
from stratalog.storage.files.filesystem import FileLock, FileSystem, replace_file
from stratalog.storage.formats.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
)
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.types import TopicPartition

PLACE = TopicPartition("t", 0)


class Keeper:
    """Opens the log with all that the log directory says about it."""

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        config: LogConfig,
        *,
        root: str = "/data",
        watermark: Watermark = Watermark.SYNCED,
    ) -> None:
        self.file_system = file_system
        self.root = root
        self.folder = f"{root}/t-0"
        self.lock = self.take_lock()
        try:
            is_clean = self.take_marker()
            self.log = PartitionLog.open(
                self.folder,
                config,
                file_system=file_system,
                clock=clock,
                recovery_point=self.read(RECOVERY_CHECKPOINT),
                log_start=self.read(LOG_START_CHECKPOINT),
                high_watermark=self.read(HIGH_WATERMARK_CHECKPOINT),
                is_clean=is_clean,
                clean_end=self.clean_end() if is_clean else None,
                watermark=watermark,
            )
            self.after_load()
        except BaseException:
            self.lock.close()
            self.on_failed_open()
            raise

    def take_lock(self) -> FileLock:
        return self.file_system.lock(f"{self.root}/{LOCK}")

    def take_marker(self) -> bool:
        """Whether the last stop was an orderly one. From here on it is none, until it is again."""
        is_clean = self.file_system.stat(f"{self.root}/{CLEAN_SHUTDOWN}") is not None
        if is_clean:
            self.file_system.unlink(f"{self.root}/{CLEAN_SHUTDOWN}")
        self.sync_root()
        return is_clean

    def sync_root(self) -> None:
        """Sync the names in the root, as ``LogDirectory.begin`` does. A killed process may have renamed a
        checkpoint without syncing the folder: what the log is opened by must not change back after it."""
        self.file_system.sync_dir(self.root)

    def clean_end(self) -> int | None:
        """Where the orderly stop left the log."""
        return self.read(RECOVERY_CHECKPOINT)

    def after_load(self) -> None:
        """The checkpoint never says more than the log: a truncation may have come between."""
        if self.log.recovery_point < self.read(RECOVERY_CHECKPOINT):
            self.write(RECOVERY_CHECKPOINT, self.log.recovery_point)

    def on_failed_open(self) -> None:
        """A log that cannot be opened leaves no marker."""

    def read(self, name: str) -> int:
        path = f"{self.root}/{name}"
        found = self.file_system.stat(path)
        if found is None:
            return 0
        file = self.file_system.open_readable(path)
        data = bytearray(found.size)
        file.read_into(0, memoryview(data))
        file.close()
        try:
            return decode_offsets(bytes(data)).get(PLACE, 0)
        except CorruptionError:  # Kafka, too, continues without
            return 0

    def write(self, name: str, offset: int) -> None:
        path = f"{self.root}/{name}"
        replace_file(self.file_system, path, f"{path}.tmp", encode_offsets({PLACE: offset}))

    def checkpoint(self) -> None:
        """What a manager does now and then, and after a truncation."""
        self.write(RECOVERY_CHECKPOINT, self.log.recovery_point)
        self.write(LOG_START_CHECKPOINT, self.log.log_start)
        self.write(HIGH_WATERMARK_CHECKPOINT, self.log.high_watermark)

    def close(self) -> None:
        """An orderly stop, where the log lets it be one."""
        try:
            self.log.close()
            if self.log.failure is None:
                self.checkpoint()
                self.write_marker()
        finally:
            self.lock.close()

    def write_marker(self) -> None:
        path = f"{self.root}/{CLEAN_SHUTDOWN}"
        replace_file(self.file_system, path, f"{path}.tmp", b'{"version":0,"brokerEpoch":-1}')

    def abandon(self) -> None:
        """As a process ends that is killed."""
        self.log.abandon()
        self.lock.close()
