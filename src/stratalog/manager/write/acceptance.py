"""Foresee which records a topic accepts, so that the others can be appended one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from stratalog.manager.write.batches import batch_options, fit_sizes
from stratalog.records.builder import BATCH_BYTES, record_size_max
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.log_config import LogConfig

__all__ = ["Acceptance"]

#: A timestamp this close to the limit of a topic may be over it when the record is appended.
_TIME_MARGIN_MS: Final = 60_000


class Acceptance:
    """Separates the records that a topic accepts for certain from those that it may refuse."""

    def __init__(self, config: LogConfig, compression: str, now_ms: int) -> None:
        rules = AppendRules.of(config)
        options = batch_options(compression, None, BATCH_BYTES)
        if rules.codec:  # the log recompresses what came with another codec
            options = replace(options, codec=rules.codec)
        #: Batches of this size are never too large, whatever is in them.
        self.batch_bytes = fit_sizes(config, options).batch_bytes
        self._needs_key = rules.needs_key
        self._takes_any_time = rules.append_time
        self._now_ms = now_ms
        self._earliest = now_ms - rules.before_max_ms + _TIME_MARGIN_MS
        self._latest = now_ms + rules.after_max_ms - _TIME_MARGIN_MS

    def is_certain(self, record: Mapping[str, Any]) -> bool:
        """Whether the topic accepts a record with these fields, in whatever batch it is."""
        key = record.get("key")
        if self._needs_key and key is None:
            return False
        time_ms = record.get("timestamp", self._now_ms)
        if not self._takes_any_time and not self._earliest <= time_ms <= self._latest:
            return False
        size = record_size_max(key, record.get("value"), record.get("headers") or ())
        return size <= self.batch_bytes
