"""What is found in a data file: runs of intact batches, and the damage between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stratalog.records.layout import Reason
from stratalog.records.reasons import reason_name

__all__ = ["ZERO_TAIL", "Damage", "FileSurvey", "Run"]

#: The reason of zeros up to the end of a file.
ZERO_TAIL: Final = reason_name(Reason.ZERO_TAIL)

#: So many runs of one file end at a gap between offsets. In a log that was compacted every batch may, and
#: from then on a run goes on over gaps.
_GAPS_MAX: Final = 1 << 15


class Run(NamedTuple):
    """Intact batches that follow each other in one file, with the offsets from ``first`` up to but not
    including ``next``.

    ``is_guess``: these are plain messages of magic 1 that were searched for, and may be part of a damaged
    compressed one. ``is_inside``: they lie inside what a damaged batch claims, and may be part of a value."""

    source: int
    start: int
    end: int
    first: int
    next: int
    batches: int
    records: int
    control_records: int = 0
    is_guess: bool = False
    is_inside: bool = False

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def span(self) -> int:
        """How many offsets it covers."""
        return self.next - self.first

    def is_followed_by(self, other: Run) -> bool:
        """Whether ``other`` begins where this one ends, in the same file."""
        return self.source == other.source and self.end == other.start


class Damage(NamedTuple):
    """Bytes of a file that are not intact batches, and why the first of them is not."""

    source: int
    start: int
    end: int
    reason: str
    detail: str

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_blank(self) -> bool:
        """Whether these are zeros at the end of a file: space that was set aside and never used."""
        return self.reason == ZERO_TAIL


@dataclass(slots=True)
class FileSurvey:
    """The runs and the damage of one file, in the order of their positions; together they cover it."""

    source: int
    runs: list[Run] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    #: How often a batch follows another with offsets missing between them.
    gaps: int = 0
    #: The most messages that a wrapper of magic 1 holds.
    wrapper_records: int = 0
    #: Batches before this position lie inside what a damaged one claims.
    inside_until: int = 0
    #: Whether the headers of all runs were shown to the caller that wanted to see them.
    has_shown_all: bool = False

    def next_offset_at(self, position: int) -> int:
        """Return the offset after the last batch, if that ends at ``position``; otherwise -1."""
        last = self.runs[-1] if self.runs else None
        return -1 if last is None or last.end != position else last.next

    @property
    def splits_at_gaps(self) -> bool:
        return self.gaps < _GAPS_MAX

    def add(self, new: Run) -> None:
        """Add batches. They continue the last run if they follow it in the file and by their offsets."""
        new = new._replace(is_inside=new.start < self.inside_until)
        last = self.runs[-1] if self.runs else None
        is_next = last is not None and last.is_followed_by(new) and last.is_inside == new.is_inside
        if last is None or not is_next or new.first < last.next:
            self.runs.append(new)
            return
        if new.first > last.next:
            self.gaps += 1
            if self.splits_at_gaps:
                self.runs.append(new)
                return
        self.runs[-1] = last._replace(
            end=new.end,
            next=new.next,
            batches=last.batches + new.batches,
            records=last.records + new.records,
            control_records=last.control_records + new.control_records,
        )

    def confirm(self) -> None:
        """Note that the last run holds a compressed batch: so it is not part of one."""
        self.runs[-1] = self.runs[-1]._replace(is_guess=False)

    def add_damage(self, new: Damage) -> None:
        """Add damage. If it follows other damage, it is the same."""
        last = self.damage[-1] if self.damage else None
        if last is not None and last.end == new.start:
            self.damage[-1] = last._replace(end=new.end)
        else:
            self.damage.append(new)
