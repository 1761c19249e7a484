"""What retention policies look at, from a view of a log."""

from __future__ import annotations

from stratalog.storage.log.retention import SegmentFacts
from stratalog.storage.views.log_view import LogView

__all__ = ["retention_facts"]


def retention_facts(view: LogView) -> list[SegmentFacts]:
    """Return the facts of every segment, the active one last."""
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=view.segments.next_base(number, view.log_end),
            size_bytes=view.limit(number),
            largest_timestamp=segment.largest_timestamp,
            is_active=number + 1 == len(view.segments),
        )
        for number, segment in enumerate(view.segments.segments)
    ]
