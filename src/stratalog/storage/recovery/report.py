"""The options of loading a partition, and the report of what loading found and did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stratalog.clock import Clock
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.tail_verdict import OnDamage

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
    #: The log end offset that a clean shutdown left. None if there was none, or if nothing says it.
    clean_end: int | None = None
    on_damage: OnDamage = OnDamage.REFUSE
    producer_ttl_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that recovery truncated: the tail of a segment, or a whole segment after such a tail."""

    path: str
    position: int
    size_bytes: int
    #: The first offset that is no longer in the log.
    from_offset: int
    #: The stable name of what was wrong, for programs.
    reason: str
    detail: str
    #: The file that holds the truncated bytes. None where no intact batch can be among them.
    kept_as: str | None = None

    def __str__(self) -> str:
        kept = "" if self.kept_as is None else f"; the bytes are kept in {self.kept_as}"
        return (
            f"{self.path}: truncated {self.size_bytes} bytes at byte {self.position}, from offset "
            f"{self.from_offset} on: {self.detail}{kept}"
        )


@dataclass(slots=True)
class LoadReport:
    """What loading a partition found and did. False in a condition where there is nothing to report, as
    after a clean shutdown."""

    unknown_files: tuple[str, ...] = ()
    deleted_files: list[str] = field(default_factory=list)
    renamed_files: list[tuple[str, str]] = field(default_factory=list)
    recovered_segments: list[int] = field(default_factory=list)
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    #: Base offsets of segments that are no longer in the log: after a cut (then listed in ``cuts``, and
    #: kept), below the log start, or never written to.
    dropped_segments: list[int] = field(default_factory=list)
    #: Base offset of each segment that was too wide for its indexes, and of those it was split into.
    split_segments: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def cut_bytes(self) -> int:
        return sum(cut.size_bytes for cut in self.cuts)

    def __bool__(self) -> bool:
        """Whether anything was recovered or changed. Unknown files alone are left as they are."""
        return bool(
            self.deleted_files
            or self.renamed_files
            or self.recovered_segments
            or self.cuts
            or self.dropped_segments
            or self.split_segments
        )

    def warnings(self, folder: str) -> Iterator[str]:
        """Say what recovery changed about the partition's data, one sentence for each change."""
        for base, parts in self.split_segments:
            yield (
                f"{folder}: the segment at offset {base} spanned more offsets than an index can hold, and "
                f"was split into segments at {', '.join(map(str, parts))}"
            )
        yield from map(str, self.cuts)
