"""What every role may ask of an open log: its offsets, its configs, and whether it can be written."""

from __future__ import annotations

from stratalog.errors import StorageError
from stratalog.storage.log.state import LogState
from stratalog.storage.log_config import LogConfig

__all__ = ["OpenLog"]


class OpenLog:
    """One partition's log, open for writing. Roles of the same log share its state."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.folder = state.folder

    @property
    def config(self) -> LogConfig:
        return self._state.settings.config

    @property
    def log_start(self) -> int:
        return self._state.view.log_start

    @property
    def log_end(self) -> int:
        """The offset that the next record gets."""
        return self._state.view.log_end

    @property
    def high_watermark(self) -> int:
        return self._state.view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._state.view.last_stable_offset

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power cut."""
        return self._state.commit.synced_offset

    @property
    def recovery_point(self) -> int:
        """Recovery need not check what lies below it."""
        return self._state.recovery_point

    @property
    def latest_epoch(self) -> int:
        """The leader epoch that further appends carry: that of the last leader, 0 if there was none."""
        entries = self._state.epochs.entries
        return entries[-1].epoch if entries else 0

    @property
    def failure(self) -> StorageError | None:
        """Why the log cannot be written any more; None while it can."""
        return self._state.guard.failure

    @property
    def is_closed(self) -> bool:
        return self._state.guard.is_closed
