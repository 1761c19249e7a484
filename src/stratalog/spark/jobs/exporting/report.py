"""What an export did, or would do."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.inspect.file.skipped_damage import SkippedDamage

__all__ = ["ExportReport", "ExportedPartition"]


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The offsets that were written, or would be: from ``start_offset`` up to but not including
    ``end_offset``. ``size_bytes`` is what they take in the log, about."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did. ``records`` is how many were written; None where nothing was. ``warnings`` are
    sentences for people. ``left_out`` is what could not be written because it is damaged: with
    ``is_skipping`` only the damage itself, else everything in the partition from there on."""

    to: str
    format: str
    partitions: tuple[ExportedPartition, ...]
    records: int | None = None
    batches: int | None = None
    is_dry_run: bool = False
    warnings: tuple[str, ...] = ()
    left_out: tuple[SkippedDamage, ...] = ()
    is_skipping: bool = False
