"""Append to an open log, and wait until what was appended is on the disk."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.storage.log import flushing
from stratalog.storage.log.adoption import StagedFile
from stratalog.storage.log.appending import (
    AppendResult,
    adopt,
    append_as_follower,
    append_as_leader,
    check_leader_epoch,
)
from stratalog.storage.log.joint_append import Answer, append_jointly
from stratalog.storage.log.sync_queue import OnSynced
from stratalog.storage.log_roles.open_log import OpenLog
from stratalog.storage.producers.states import Origin, ProducerEntry

__all__ = ["LogAppender"]

Bytes = bytes | bytearray | memoryview


class LogAppender(OpenLog):
    """Appends, as the leader or as a follower, and the syncs that acknowledge them."""

    def append(
        self,
        data: Bytes,
        *,
        leader_epoch: int = 0,
        origin: Origin = Origin.CLIENT,
        sync: bool = False,
        strict_markers: bool = False,
    ) -> AppendResult:
        """Append batches as the leader, which assigns their offsets. With ``sync``, return when they are on
        the disk. A ``bytearray`` is stamped in place; one that was refused may be passed again as it is."""
        state = self._state
        result = append_as_leader(state, data, leader_epoch, origin, strict_markers)
        settings = state.settings
        if (
            sync
            or result.last_offset - state.recovery_point >= settings.flush_messages
            or settings.flush_ms is not None
        ):
            self._settle(result, sync=sync)
        return result

    def append_each(
        self, appends: Iterable[Bytes], *, leader_epoch: int = 0, sync: bool = False
    ) -> list[Answer]:
        """Append what several callers bring, in this order, with one write and one sync for as many as
        possible. Return an AppendResult for each, or the error for which it was refused; one that is refused
        does not affect the others. With ``sync``, return when all are on the disk.

        This is for the broker, which serves many producers from one loop. Nothing in the library calls it
        yet.
        """
        check_leader_epoch(leader_epoch)
        answers = append_jointly(self._state, appends, leader_epoch)
        for answer in reversed(answers):
            if isinstance(answer, AppendResult):
                self._settle(answer, sync=sync)
                break
        return answers

    def append_as_follower(
        self, data: Bytes, *, epoch_max: int | None = None, sync: bool = False
    ) -> AppendResult | None:
        """Append batches that have their offsets from a leader. Return None if there is nothing to append."""
        result = append_as_follower(self._state, data, epoch_max)
        if result is not None:
            self._settle(result, sync=sync)
        return result

    def adopt(
        self, staged: StagedFile, *, leader_epoch: int, first_offset: int
    ) -> AppendResult | None:
        """Append a file of finished batches as a segment of its own, to which later appends go. Nothing is
        copied; the batches get their offsets in place. Return None if it cannot be a segment: append the
        batches instead. OffsetOrderError if the log does not end at ``first_offset``."""
        check_leader_epoch(leader_epoch)
        return adopt(self._state, staged, leader_epoch, first_offset)

    def _settle(self, result: AppendResult, *, sync: bool) -> None:
        """Do what an append waits for, without the lock: a sync needs it, too."""
        state = self._state
        if result.last_offset - state.recovery_point >= state.settings.flush_messages:
            flushing.flush(state)
        else:
            flushing.flush_if_due(state)
        if sync:
            state.reach(result.next_offset)

    # Onto the disk.

    def begin_sync(self) -> None:
        """Let the disk begin to write what was appended, so that a later sync waits for less."""
        self._state.active.begin_sync()

    def sync(self) -> int:
        """Wait until everything that is written now is on the disk; return the offset up to which that is.
        One sync serves all callers that wait."""
        state = self._state
        state.guard.check()
        state.reach(state.view.log_end)
        return state.commit.synced_offset

    def when_synced(self, offset: int, done: OnSynced) -> None:
        """Call ``done`` from another thread when everything below ``offset`` is on the disk, or with the
        error that prevents it. If the log is closed first, the closing thread syncs and makes the call. If
        the log is truncated below ``offset`` first, the error is OffsetOutOfRangeError.

        This is for the broker, whose loop must not wait for a disk. Nothing in the library calls it yet.
        """
        self._state.guard.check()
        self._state.sync_queue.put(offset, done)

    def advance_high_watermark(self, offset: int) -> int:
        """Move the high watermark forward to ``offset``, but not beyond the log end; return where it is."""
        return self._state.advance_high_watermark(offset)

    # Who appends.

    @property
    def producers(self) -> list[ProducerEntry]:
        with self._state.guard.lock:
            return list(self._state.producers.entries.values())

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Become the leader of an epoch, which writes from the log end on, or from ``start_offset``."""
        with self._state.guard.changing():
            end = self._state.view.log_end
            self._state.epochs.assign(epoch, end if start_offset is None else start_offset)
