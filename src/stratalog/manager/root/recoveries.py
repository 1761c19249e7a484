"""Outcomes of opening partitions: kept for ``Logs.recovery`` and ``Logs.damage``, and logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.storage.recovery.report import LoadReport
from stratalog.types import TopicPartition

__all__ = ["OnRecovery", "Recoveries", "log_report"]

#: Called with the folder of a partition and the report of its recovery.
OnRecovery = Callable[[str, LoadReport], None]

_LOGGER_NAME: Final = "stratalog.recovery"


def log_report(folder: str, report: LoadReport) -> None:
    """Log what recovery did to a partition; what it changed about the data as a warning."""
    import logging  # not at the top: it takes a tenth of the time that starting the command line takes

    logger = logging.getLogger(_LOGGER_NAME)
    for sentence in report.warnings(folder):
        logger.warning("%s", sentence)
    logger.info(
        "%s: recovered %d segments, scanned %d bytes, truncated %d bytes",
        folder, len(report.recovered_segments), report.scanned_bytes, report.cut_bytes,
    )  # fmt: skip


class Recoveries:
    """The outcome of opening each partition that was not left in order by a clean shutdown."""

    def __init__(self, on_recovery: OnRecovery) -> None:
        self._on_recovery = on_recovery
        self._reports: dict[TopicPartition, LoadReport] = {}
        self._refusals: dict[TopicPartition, CorruptionError] = {}

    @property
    def reports(self) -> Mapping[TopicPartition, LoadReport]:
        return MappingProxyType(self._reports)

    def opened(self, partition: TopicPartition, folder: str, report: LoadReport) -> None:
        """Note that a partition was opened, and hand on what its recovery did."""
        self._refusals.pop(partition, None)
        if report:
            self._reports[partition] = report
            self._on_recovery(folder, report)

    def refused(self, partition: TopicPartition, error: CorruptionError) -> None:
        """Note that a partition could not be opened."""
        self._refusals[partition] = error

    def is_refused(self, partition: TopicPartition) -> bool:
        """Return whether a partition could not be opened when it was last tried."""
        return partition in self._refusals

    def forget(self, topic: str) -> None:
        """Drop the outcomes of a topic that was deleted."""
        for kept in (self._reports, self._refusals):
            for each in [each for each in kept if each.topic == topic]:
                del kept[each]

    def damage(self) -> Iterator[CorruptionError]:
        """Yield an error for every partition that was refused, and for every cut that may hold records."""
        yield from self._refusals.values()
        for report in self._reports.values():
            for cut in report.cuts:
                if cut.kept_as is not None:
                    yield CorruptionError(
                        cut.reason,
                        f"{cut.detail}; truncated {cut.size_bytes} bytes from offset {cut.from_offset} on",
                        position=cut.position,
                        path=cut.path,
                        advice=f"the bytes are kept in {cut.kept_as}",
                    )
