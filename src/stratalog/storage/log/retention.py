"""Which segments have outlived their time. Facts and policies in, a plan with its reasons out.

A policy looks at segments from the oldest on and gives a reason for each one that may go; where it stops,
the rest stays. So only a beginning of the log is ever deleted. No policy sees the high watermark: nothing
goes that readers may not have seen yet, whatever a policy says, and the planner holds to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from stratalog.storage.log_config import LogConfig

__all__ = [
    "BreachedStart",
    "RetentionPlan",
    "RetentionPolicy",
    "SegmentDeletion",
    "SegmentFacts",
    "SizeLimit",
    "TimeLimit",
    "plan_retention",
    "policies_for",
]


class SegmentFacts(NamedTuple):
    """What a policy may know of a segment.

    ``next_offset`` is one past its last record; of the active segment, the end of the log.
    ``largest_timestamp`` is that of its records, or the file's own time where no record has one.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    is_active: bool


class RetentionPolicy(Protocol):
    """One reason to delete segments."""

    @property
    def name(self) -> str:
        """The config that it implements, or another name that people know it by."""
        ...

    def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
        """Why each segment may go, from the oldest on; it ends before the first that stays."""
        ...


@dataclass(frozen=True, slots=True)
class BreachedStart:
    """Segments that lie wholly below the log start offset: they cannot be read any more."""

    log_start: int
    name: str = "log-start"

    def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
        for follower in segments[1:]:
            if follower.base_offset > self.log_start:
                return
            yield f"the log starts at {self.log_start}, the next segment at {follower.base_offset}"


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """What is above a number of bytes. A segment goes only if the rest still reaches the limit."""

    limit: int
    name: str = "retention.bytes"

    def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
        if self.limit < 0:
            return
        total = sum(segment.size_bytes for segment in segments)
        for segment in segments:
            left = total - segment.size_bytes
            if left < self.limit:
                return
            yield f"the log has {total} bytes, and {left} without it: not below {self.limit}"
            total = left


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """What is older than a number of milliseconds. One record from the future holds its segment, and
    all later ones, until its time has come and gone."""

    limit_ms: int
    now_ms: int
    name: str = "retention.ms"

    def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
        if self.limit_ms < 0:
            return
        for segment in segments:
            age_ms = self.now_ms - segment.largest_timestamp
            if age_ms <= self.limit_ms:
                return
            yield f"its newest time is {age_ms} ms ago, more than {self.limit_ms}"


class SegmentDeletion(NamedTuple):
    """A segment that goes, why, and the name of the policy that says so."""

    base_offset: int
    reason: str
    policy: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to do: roll first if ``needs_roll``, then raise the start, then delete, in this order.

    ``new_log_start`` is None where nothing goes; the log's start may be above it already.
    """

    deletions: tuple[SegmentDeletion, ...] = ()
    new_log_start: int | None = None
    needs_roll: bool = False


_NOTHING: Final = RetentionPlan()


def plan_retention(
    segments: Sequence[SegmentFacts],
    policies: Sequence[RetentionPolicy],
    *,
    high_watermark: int,
) -> RetentionPlan:
    """Let each policy, in turn, take from the front of what the former ones left.

    ``segments`` are all of the log, oldest first, the active one last. It goes too where it is not empty
    and everything in it may: then a new one must be rolled before, as a log has always one.
    """
    deletions: list[SegmentDeletion] = []
    for policy in policies:
        left = segments[len(deletions) :]
        # A policy of others may give more reasons than there are segments.
        for at, reason in zip(range(len(left)), policy(left), strict=False):
            segment, is_last = left[at], at + 1 == len(left)
            end = segment.next_offset if is_last else left[at + 1].base_offset
            if high_watermark < end or (is_last and segment.size_bytes == 0):
                break
            deletions.append(SegmentDeletion(segment.base_offset, reason, policy.name))
    if not deletions:
        return _NOTHING
    takes_all = len(deletions) == len(segments)
    new_start = segments[-1].next_offset if takes_all else segments[len(deletions)].base_offset
    return RetentionPlan(tuple(deletions), new_start, takes_all)


def policies_for(config: LogConfig, now_ms: int, log_start: int) -> tuple[RetentionPolicy, ...]:
    """What a topic's configs ask for, in Kafka's order: the start, the size, the time."""
    policies: list[RetentionPolicy] = [BreachedStart(log_start)]
    if config.deletes and config.retention_bytes >= 0:
        policies.append(SizeLimit(config.retention_bytes))
    if config.deletes and config.retention_ms >= 0:
        policies.append(TimeLimit(config.retention_ms, now_ms))
    return tuple(policies)
