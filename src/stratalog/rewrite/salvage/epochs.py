"""Read the leader epochs of a partition, and tell which of them hold for what is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stratalog.errors import CorruptionError, StorageError
from stratalog.rewrite.salvage.header_facts import EpochRun
from stratalog.storage.epochs.leader_epochs import EpochEntry, LeaderEpochs
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import LEADER_EPOCH_CHECKPOINT

__all__ = ["epochs_of", "read_epochs"]


def read_epochs(file_system: FileSystem, folder: str) -> LeaderEpochs | None:
    """Return the leader epochs of the checkpoint; None if it is missing or cannot be read."""
    try:
        data = read_small_file(file_system, os.path.join(folder, LEADER_EPOCH_CHECKPOINT))
        return None if data is None else LeaderEpochs.decode(data)
    except (CorruptionError, StorageError):
        return None  # the batches say it as well


def epochs_of(
    runs: Iterable[EpochRun],
    known: LeaderEpochs | None,
    *,
    log_start: int,
    log_end: int,
) -> LeaderEpochs:
    """Return the leader epochs of a log. ``known`` are those of the checkpoint, None if it is missing or
    cannot be read: they hold if no batch contradicts them, otherwise the batches say."""
    found = list(runs)
    if known is None or any(_contradicts(each, known) for each in found):
        epochs = LeaderEpochs(EpochEntry(each.epoch, each.first_offset) for each in found)
    else:
        epochs = LeaderEpochs(known.entries)
    epochs.truncate_from_end(max(log_end, log_start))
    epochs.truncate_from_start(log_start)
    return epochs


def _contradicts(run: EpochRun, known: LeaderEpochs) -> bool:
    if known.latest is None:
        return True
    said = (known.epoch_for_offset(each) for each in (run.first_offset, run.last.first))
    return any(each is not None and each != run.epoch for each in said)
