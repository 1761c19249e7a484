"""What loading a partition must know, and what it tells: what it found, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.clock import Clock
from stratalog.storage.damage import OnDamage
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.sparse_index import IndexLimits

__all__ = ["Cut", "LoadOptions", "LoadReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What loading must know beyond the folder."""

    file_system: FileSystem
    clock: Clock
    limits: IndexLimits
    recovery_point: int = 0
    log_start: int = 0
    is_clean: bool = False
    on_damage: OnDamage = OnDamage.REFUSE
    producer_ttl_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Cut:
    """A tail that was cut off."""

    path: str
    position: int
    size_bytes: int
    #: The first offset that is not there any more. How many followed it nobody can tell.
    from_offset: int
    detail: str
    #: Where the bytes were kept, when there were sound batches among them.
    kept_as: str | None = None


@dataclass(slots=True)
class LoadReport:
    """What loading found and did; empty after an orderly stop."""

    unknown_files: tuple[str, ...] = ()
    deleted_files: list[str] = field(default_factory=list)
    renamed_files: list[tuple[str, str]] = field(default_factory=list)
    recovered_segments: list[int] = field(default_factory=list)
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    #: Base offsets of segments that lay behind a cut, or below the log's start, and were set aside.
    dropped_segments: list[int] = field(default_factory=list)
    #: Segments that were too wide for their indexes, and of which they were made.
    split_segments: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def cut_bytes(self) -> int:
        return sum(cut.size_bytes for cut in self.cuts)
