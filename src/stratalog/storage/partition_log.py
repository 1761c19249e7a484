"""One partition on disk: the facade that applies what the other modules decide.

One lock guards everything that changes the log. Nothing that depends only on bytes happens under it: appends
are admitted before, reads work on a :class:`LogView`, syncs wait outside. ``log/state`` has what the log is
made of; the other modules of ``log`` change it, and ``log/guard`` says whether that is allowed. ``log_roles``
has the methods, by use.
"""

from __future__ import annotations

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log import flushing
from stratalog.storage.log.appending import AppendResult
from stratalog.storage.log.state import LogState, Watermark
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_roles.appender import LogAppender
from stratalog.storage.log_roles.maintenance import LogMaintenance
from stratalog.storage.log_roles.reader import LogReader
from stratalog.storage.recovery.load import load_log
from stratalog.storage.recovery.report import LoadOptions, LoadReport
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.tail_verdict import OnDamage

__all__ = ["AppendResult", "PartitionLog", "Watermark"]


class PartitionLog(LogAppender, LogReader, LogMaintenance):
    """One partition's log, open for writing, in all its roles. Made by :meth:`open`."""

    def __init__(
        self, folder: str, config: LogConfig, options: LoadOptions, watermark: Watermark
    ) -> None:
        loaded = load_log(folder, options)
        super().__init__(LogState(folder, config, options, watermark, loaded))
        #: What loading found and did.
        self.report: LoadReport = loaded.report
        # What recovery has checked may still be in the page cache only: nothing is shown before it is
        # on the disk.
        if watermark is Watermark.SYNCED:
            self.sync()
        if watermark is not Watermark.CALLER:
            self.advance_high_watermark(loaded.next_offset)

    @classmethod
    def open(
        cls,
        folder: str,
        config: LogConfig | None = None,
        *,
        file_system: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        recovery_point: int = 0,
        log_start: int = 0,
        high_watermark: int | None = None,
        is_clean: bool = False,
        clean_end: int | None = None,
        on_damage: OnDamage | str = OnDamage.REFUSE,
        producer_ttl_ms: int = 86_400_000,
        watermark: Watermark | str = Watermark.CALLER,
    ) -> PartitionLog:
        """Open an existing folder, through recovery unless it was closed in order (``is_clean``).

        ``recovery_point`` and ``log_start`` are what the checkpoints of the log directory say, ``clean_end``
        is the log end offset that a clean shutdown left: a log that goes on beyond it is damaged. No other
        process may write to the folder meanwhile; the lock for that is the log directory's.
        """
        config = config or LogConfig()
        options = LoadOptions(
            file_system=file_system or OsFileSystem(),
            clock=clock,
            limits=IndexLimits(config.index_interval_bytes, config.segment_index_bytes),
            recovery_point=recovery_point,
            log_start=log_start,
            is_clean=is_clean,
            clean_end=clean_end,
            on_damage=OnDamage(on_damage),
            producer_ttl_ms=producer_ttl_ms,
        )
        log = cls(folder, config, options, Watermark(watermark))
        if high_watermark is not None:
            log.advance_high_watermark(min(max(high_watermark, log.log_start), log.log_end))
        return log

    def close(self) -> None:
        """Sync everything and release the files. Afterwards the log may be opened with ``is_clean``. After a
        failure only the files are released. A reader that holds a region of the log may read it to the end;
        further reads raise an error."""
        if self._state.guard.is_inherited:
            self.abandon()
            return
        self._state.sync_queue.close()
        state, guard = self._state, self._state.guard
        with state.flush_lock, guard.lock:
            if guard.is_closed:
                return
            try:
                if guard.failure is None:
                    flushing.finish(state)
            finally:
                self._release()

    def abandon(self) -> None:
        """Release the files as they are, as a process does that dies."""
        with self._state.guard.lock:
            self._release()
        self._state.sync_queue.close()

    def _release(self) -> None:
        self._state.guard.is_closed = True
        for segment in self._state.view.segments.segments:
            segment.close()
        if not self._state.guard.is_inherited:  # the readers are threads of the parent
            self.wake_readers()
