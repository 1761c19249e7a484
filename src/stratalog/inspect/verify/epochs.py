"""Compares the leader epochs of a partition's checkpoint with those that its batches carry.

A leader writes its epoch into every batch and enters (epoch, first offset) into the checkpoint before the
batch. So for every offset from the first entry on, the checkpoint names the epoch of the batch there. Older
batches may have epochs that the checkpoint does not know: a message format below 2 emptied it. Without an
orderly stop, the latest epochs may be missing: recovery adds them from the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.inspect.check.report import Finding
from stratalog.storage.epochs.leader_epochs import EpochEntry, LeaderEpochs

__all__ = ["find_epoch_conflict"]

_ADVICE = (
    "delete it while nothing writes to the directory, with the marker .kafka_cleanshutdown and the "
    "recovery-point-offset-checkpoint: recovery then makes it from the batches"
)


def find_epoch_conflict(
    path: str,
    entries: Sequence[EpochEntry],
    batches: Sequence[tuple[int, int, int]],
    *,
    log_start: int,
    is_clean: bool,
) -> Finding | None:
    """Find the first batch whose epoch is not what the checkpoint says. ``batches`` are the epoch, the first
    and the last offset of every run of batches of one epoch."""
    epochs = LeaderEpochs(entries)
    latest = epochs.latest
    for epoch, first, last in batches:
        if latest is None or (epoch > latest.epoch and not is_clean):
            continue
        for offset in (first, last):
            said = epochs.epoch_for_offset(offset)
            if said is None or said == epoch or offset < log_start:
                continue
            detail = (
                f"it gives offset {offset} to epoch {said}, and the batch there is of epoch {epoch}"
            )
            return Finding.about(path, "damage", "leader_epoch", detail, _ADVICE, offset=offset)
    return None
