"""The leader epochs of a partition, and the file that keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stratalog.errors import CorruptionError
from stratalog.storage.epochs.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import LEADER_EPOCH_CHECKPOINT, TEMPORARY_SUFFIX
from stratalog.types import NO_LEADER_EPOCH

__all__ = ["EpochFile"]


class EpochFile:
    """Epochs in memory and on the disk. What is changed is written at once: it is seldom."""

    def __init__(self, file_system: FileSystem, path: str, epochs: LeaderEpochs) -> None:
        self._file_system = file_system
        self._path = path
        self._epochs = epochs
        #: The last entry, or -1. Every append asks.
        self.latest_epoch, self.latest_start = self._latest()
        #: Whether the file was there and could not be believed: the log is to be asked.
        self.was_damaged = False

    @classmethod
    def load(cls, file_system: FileSystem, folder: str, *, read_only: bool = False) -> EpochFile:
        """Read the file. If there is none, create an empty one, as Kafka does."""
        path = os.path.join(folder, LEADER_EPOCH_CHECKPOINT)
        try:
            data = read_small_file(file_system, path)
            if data is not None:
                return cls(file_system, path, LeaderEpochs.decode(data))
        except CorruptionError:
            lost = cls(file_system, path, LeaderEpochs())
            lost.was_damaged = True
            return lost
        if not read_only:
            file_system.open_writable(path, create=True).close()
        return cls(file_system, path, LeaderEpochs())

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._epochs.entries

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        return self._epochs.end_offset_for(epoch, log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self._epochs.epoch_for_offset(offset)

    def assign(self, epoch: int, start_offset: int) -> None:
        with self._changing() as epochs:
            epochs.assign(epoch, start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        with self._changing() as epochs:
            epochs.truncate_from_end(end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        with self._changing() as epochs:
            epochs.truncate_from_start(start_offset)

    def clear(self) -> None:
        with self._changing() as epochs:
            epochs.clear()

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Put other entries in the place of what was there."""
        with self._changing() as epochs:
            epochs.clear()
            for epoch, start_offset in entries:
                epochs.assign(epoch, start_offset)
        self.was_damaged = False

    @contextmanager
    def _changing(self) -> Iterator[LeaderEpochs]:
        """What cannot be written has not happened: it is tried again with the next change."""
        before = self._epochs.entries
        yield self._epochs
        if self._epochs.entries == before:
            return
        try:
            replace_file(
                self._file_system, self._path, self._path + TEMPORARY_SUFFIX, self._epochs.encode()
            )
        except BaseException:
            self._epochs = LeaderEpochs(before)
            raise
        finally:
            self.latest_epoch, self.latest_start = self._latest()

    def _latest(self) -> tuple[int, int]:
        return self._epochs.latest or (NO_LEADER_EPOCH, -1)
