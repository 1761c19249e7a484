"""Decide which runs of intact batches are kept: every offset once, and in order.

Batches that are where they belong form a chain: from file to file and position to position, their offsets
rise. The heaviest chain is kept. What remains was moved, as whole blocks of a disk may be, or copied, or has
a wrong offset: no CRC covers the offset of a batch.

- What was copied has offsets that are kept already: it is left out.
- What was moved has offsets that are missing elsewhere: it is kept, in the order of its offsets.
- A single batch that would fit where it lies if one bit of its offset were different has a wrong offset. It
  is left out, as readers leave it out: its records would appear under wrong offsets.

All of this is a pure function of the runs. Batches are looked up only where a run is kept in part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.salvage.chain import Link, heaviest_chain
from stratalog.rewrite.salvage.runs import FileSurvey, Run

__all__ = ["BatchesOf", "LeftOut", "LeftOutReason", "LogFacts", "Selection", "select_runs"]

#: The batches of a run, each as a run of its own.
BatchesOf = Callable[[Run], Iterable[Run]]

#: A log is dense, which means not compacted, if no batch lacks records, and if there are no more gaps between
#: batches than wrong offsets would explain.
_GAPS_MAX: Final = 4
#: A gap that is larger and that one flipped bit explains is not taken for one that compaction left.
_GAP_LARGE: Final = 1 << 16
#: So many records may have been in a damaged byte: of compressed ones, more than one.
_RECORDS_PER_BYTE: Final = 64
_OFFSET_BITS: Final = 63


class LeftOutReason:
    """Why intact batches are not kept. The names are stable."""

    DUPLICATE: Final = "duplicate"
    MISPLACED: Final = "misplaced"
    LEADER_EPOCH: Final = "leader_epoch_order"


class LeftOut(NamedTuple):
    """Intact batches that are not kept."""

    run: Run
    reason: str
    detail: str


class LogFacts(NamedTuple):
    """What is known of a log besides its runs. ``log_end`` is where a clean shutdown left it."""

    bases: Sequence[int]
    is_dense: bool
    damaged_bytes: int
    wrapper_records: int = 0
    log_end: int | None = None

    @classmethod
    def of(
        cls,
        surveys: Sequence[FileSurvey],
        bases: Sequence[int],
        log_end: int | None = None,
        *,
        is_v07: bool = False,
    ) -> LogFacts:
        """Gather what surveys say. Logs of 0.7 were never compacted."""
        runs = [run for survey in surveys for run in survey.runs]
        gaps = sum(survey.gaps for survey in surveys)
        damaged_bytes = sum(
            each.size_bytes for survey in surveys for each in survey.damage if not each.is_blank
        )
        return cls(
            bases=bases,
            is_dense=is_v07
            or (
                gaps <= (_GAPS_MAX if damaged_bytes else 0)
                and all(run.records + run.control_records == run.span for run in runs)
            ),
            damaged_bytes=damaged_bytes,
            wrapper_records=max((survey.wrapper_records for survey in surveys), default=0),
            log_end=log_end,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """``kept`` in the order of the offsets; ``in_place`` are those of them that were where they belong."""

    kept: tuple[Run, ...]
    in_place: tuple[Run, ...]
    left_out: tuple[LeftOut, ...]


def select_runs(
    live: Sequence[Run],
    facts: LogFacts,
    batches_of: BatchesOf,
    leftovers: Sequence[Run] = (),
) -> Selection:
    """Select from the runs of the live segments, in the order of files and positions, and then from those of
    ``leftovers`` what has offsets that no other has. What of the leftovers is not used is not reported."""
    selector = _Selector(live, facts, batches_of)
    selector.keep_chain()
    selector.keep_moved()
    for run in leftovers:
        selector.fill(run, is_reported=False)
    return selector.result()


class _Selector:
    def __init__(self, runs: Sequence[Run], facts: LogFacts, batches_of: BatchesOf) -> None:
        self._runs = runs
        self._facts = facts
        self._batches_of = batches_of
        self._kept = _KeptOffsets()
        self._chain: list[int] = []
        self._moved: set[int] = set()
        self._left_out: list[LeftOut] = []

    def result(self) -> Selection:
        return Selection(
            tuple(self._kept.runs),
            tuple(self._runs[number] for number in self._chain),
            tuple(self._left_out),
        )

    # The chain.

    def keep_chain(self) -> None:
        numbers = [number for number in range(len(self._runs)) if not self._is_suspect(number)]
        links = [
            _link(self._runs[number], is_confirmed=self._is_at_its_base(number))
            for number in numbers
        ]
        self._chain = [numbers[each] for each in heaviest_chain(links)]
        for number in self._chain:
            self._kept.add(self._runs[number])

    def _is_suspect(self, number: int) -> bool:
        """Whether what lies around a run says that its offsets are wrong, whatever others say."""
        run, base = self._runs[number], self._facts.bases[self._runs[number].source]
        if run.first < base or run.is_inside or self._may_be_inside_a_wrapper(number):
            return True
        if run.batches > 1:
            return self._is_far(number, INT32_MAX)
        if run.next - base - 1 > INT32_MAX:
            return True
        return self._contradicts_before(number) or self._contradicts_after(number)

    def _contradicts_before(self, number: int) -> bool:
        """Whether a batch would be in order, but for a flipped bit, after the one that it follows."""
        run, before, after = self._runs[number], self._before(number), self._after(number)
        if before is None:
            return self._is_far(number)
        expected = self._expected(number, before)
        if run.first == expected:
            return False
        if after is not None and expected + run.span == after.first:
            return True  # it fits exactly where it lies
        if run.first < expected:
            return False  # one of the two; the chain decides
        if self._facts.log_end is not None and run.next > self._facts.log_end:
            return True
        if after is not None or not self._facts.damaged_bytes:
            return False  # a gap that compaction may have left
        is_large = run.first - expected > _GAP_LARGE
        is_gap = self._facts.is_dense and self._is_confirmed(number - 1)
        return (is_gap or is_large) and _is_one_bit(run, expected)

    def _contradicts_after(self, number: int) -> bool:
        """The same before the one that follows it, if only damage lies before it."""
        run, after = self._runs[number], self._after(number)
        if after is None or self._before(number) is not None or run.next == after.first:
            return False
        is_zero = run.first == 0 and run.start > 0
        if not is_zero and not _is_one_bit(run, after.first - run.span):
            return False
        if (
            run.next > after.first
        ):  # one of the two is wrong: the higher one, if it has room below the other
            return after.first - run.span >= self._end_before(number)
        return self._facts.is_dense and self._is_confirmed(number + 1)

    def _end_before(self, number: int) -> int:
        """The offset after the nearest run before this one in its file, or the base offset of the file."""
        run, before = self._runs[number], self._runs[number - 1] if number else None
        is_own = before is not None and before.source == run.source
        return before.next if before is not None and is_own else self._facts.bases[run.source]

    def _is_confirmed(self, number: int) -> bool:
        """Whether more than its own header says that the offsets of a run are right."""
        return self._runs[number].batches > 1 or self._is_at_its_base(number)

    def _is_at_its_base(self, number: int) -> bool:
        run = self._runs[number]
        return run.start == 0 and run.first == self._facts.bases[run.source]

    def _expected(self, number: int, before: Run) -> int:
        """The offset that is expected after a batch; if that has a wrong offset itself, after its own."""
        earlier = self._before(number - 1)
        if before.batches == 1 and earlier is not None and earlier.next != before.first:
            fitting = earlier.next + before.span
            if fitting == self._runs[number].first:
                return fitting
        return before.next

    def _may_be_inside_a_wrapper(self, number: int) -> bool:
        """The messages inside a wrapper of magic 1 have offsets from 0 on, and may not be compressed. A
        wrapper has no more of them than there is room for where it lies."""
        run = self._runs[number]
        if not run.is_guess or run.first >= self._facts.wrapper_records:
            return False
        low, high = self._facts.bases[run.source], None
        for other in self._runs[:number][::-1]:
            if other.source == run.source and not other.is_guess:
                low = other.next
                break
        for other in self._runs[number + 1 :]:
            if other.source == run.source and not other.is_guess:
                high = other.first
                break
        room = self._facts.wrapper_records
        return run.first < (room if high is None else min(room, max(high - low, 0)))

    def _is_far(self, number: int, least: int = 0) -> bool:
        """Whether a batch after damage is further above the one before than the damage can explain."""
        run, before = self._runs[number], self._runs[number - 1] if number else None
        if not self._facts.is_dense or not self._facts.damaged_bytes:
            return False
        expected, position = self._facts.bases[run.source], 0
        if before is not None and before.source == run.source:
            expected, position = before.next, before.end
        gap = run.first - expected
        return gap > max(least, _RECORDS_PER_BYTE * (run.start - position))

    def _before(self, number: int) -> Run | None:
        """The run that ends where this one begins."""
        other = self._runs[number - 1] if number else None
        return other if other is not None and other.is_followed_by(self._runs[number]) else None

    def _after(self, number: int) -> Run | None:
        other = self._runs[number + 1] if number + 1 < len(self._runs) else None
        return other if other is not None and self._runs[number].is_followed_by(other) else None

    # What is not in the chain.

    def keep_moved(self) -> None:
        """Keep what was moved, until nothing more is found; leave out the rest."""
        chained = set(self._chain)
        rest = [number for number in range(len(self._runs)) if number not in chained]
        rest.sort(key=lambda number: -_link(self._runs[number]).weight)
        while True:
            claims = {(self._runs[number].first, self._runs[number].next) for number in rest}
            doubtful = [number for number in rest if not self._keep(number, claims)]
            if len(doubtful) == len(rest):
                break
            rest = doubtful
        for number in sorted(rest):
            run = self._runs[number]
            self._leave_out(run, LeftOutReason.MISPLACED, self._misplaced(number))

    def _keep(self, number: int, claims: Container[tuple[int, int]]) -> bool:
        """Keep a run, or the part of it that has offsets of its own. False if there is doubt about them."""
        run = self._runs[number]
        if self._kept.covers(run):
            self._leave_out(run, LeftOutReason.DUPLICATE, _duplicate(run))
            return True
        if not self._is_believable(number, claims):
            return False
        self.fill(run)
        self._moved.add(number)
        return True

    def fill(self, run: Run, *, is_reported: bool = True) -> None:
        """Keep those batches of a run whose offsets are not kept yet."""
        if self._kept.is_free(run):
            self._kept.add(run)
            return
        for part, is_free in self._parts(run):
            if is_free:
                self._kept.add(part)
            elif is_reported:
                self._leave_out(part, LeftOutReason.DUPLICATE, _duplicate(part))

    def _parts(self, run: Run) -> list[tuple[Run, bool]]:
        """Divide a run into parts that are free, and parts that are not."""
        parts: list[tuple[Run, bool]] = []
        for batch in self._batches_of(run):
            is_free = self._kept.is_free(batch)
            last = parts[-1] if parts else None
            if last is not None and last[1] == is_free:
                parts[-1] = (_joined(last[0], batch), is_free)
            else:
                parts.append((batch, is_free))
        return parts

    def _is_believable(self, number: int, claims: Container[tuple[int, int]]) -> bool:
        run = self._runs[number]
        if not self._is_within_log(run) or self._may_be_inside_a_wrapper(number):
            return False
        if run.is_inside and not self._kept.is_free(run):
            return False
        if run.batches > 1:
            return True  # offsets that follow each other are not wrong by chance
        if not self._kept.is_free(run):
            return False
        if not self._is_next_to_chain(number) or self._is_next_to_moved(number):
            return True  # nothing says that it belongs where it lies
        low, high = self._place_of(number)
        place = run._replace(first=low, next=low + run.span)
        if high - low < run.span or not self._kept.is_free(place):
            return True  # there is no room for it where it lies
        if run.first == 0 and low > 0:
            return False  # zeros instead of its offset
        if not any(low <= first <= high - run.span for first in _one_bit_apart(run)):
            return True
        # Unless another has the offsets that belong here: then the two changed places.
        return (place.first, place.next) in claims

    def _is_next_to_chain(self, number: int) -> bool:
        at = bisect_left(self._chain, number)
        around = self._chain[max(at - 1, 0) : at + 1]
        run = self._runs[number]
        return any(
            self._runs[each].is_followed_by(run) or run.is_followed_by(self._runs[each])
            for each in around
        )

    def _is_next_to_moved(self, number: int) -> bool:
        """Whether it lies in order next to a run that was moved: both came together."""
        run, before, after = self._runs[number], self._before(number), self._after(number)
        if before is not None and number - 1 in self._moved and before.next <= run.first:
            return True
        return after is not None and number + 1 in self._moved and run.next <= after.first

    def _is_within_log(self, run: Run) -> bool:
        if run.first < min(self._facts.bases, default=0):
            return False
        if self._facts.log_end is not None and run.next > self._facts.log_end:
            return False
        return run.first - self._kept.end <= self._facts.damaged_bytes

    def _place_of(self, number: int) -> tuple[int, int]:
        """Return the offsets that there is room for where a run lies: by its neighbours if they are in the
        chain, otherwise by the nearest runs of the chain."""
        run, chain = self._runs[number], self._chain
        at = bisect_left(chain, number)
        before = self._runs[chain[at - 1]] if at else None
        after = self._runs[chain[at]] if at < len(chain) else None
        low = min(self._facts.bases) if before is None else before.next
        high = max(self._kept.end, low) + run.span if after is None else after.first
        is_next_to_before = before is not None and before.is_followed_by(run)
        is_next_to_after = after is not None and run.is_followed_by(after)
        if is_next_to_before and not is_next_to_after and self._facts.is_dense:
            return low, low + run.span
        if is_next_to_after and not is_next_to_before and self._facts.is_dense:
            return high - run.span, high
        return low, high

    def _misplaced(self, number: int) -> str:
        run = self._runs[number]
        low, high = self._place_of(number)
        what = "the batch says" if run.batches == 1 else "the batches say"
        return (
            f"{what} offsets {run.first} to {run.next - 1}, which is not where they lie: there is room for "
            f"the offsets from {low} up to {high}"
        )

    def _leave_out(self, run: Run, reason: str, detail: str) -> None:
        self._left_out.append(LeftOut(run, reason, detail))


def _one_bit_apart(run: Run) -> Iterator[int]:
    """The first offsets that a batch would have with one other bit in its header, which has the first offset,
    or for messages of magic 0 and 1 the last."""
    last = run.next - 1
    for bit in range(_OFFSET_BITS):
        yield run.first ^ 1 << bit
        yield (last ^ 1 << bit) - run.span + 1


def _is_one_bit(run: Run, first: int) -> bool:
    """Whether the offsets of a batch would begin at ``first`` with one other bit in its header."""
    return first >= 0 and first in _one_bit_apart(run)


def _link(run: Run, *, is_confirmed: bool = False) -> Link:
    """Weigh a run by its records."""
    return Link(run.first, run.next, 2 * max(run.records + run.control_records, 1) + is_confirmed)


def _joined(one: Run, other: Run) -> Run:
    return one._replace(
        end=other.end,
        next=other.next,
        batches=one.batches + other.batches,
        records=one.records + other.records,
        control_records=one.control_records + other.control_records,
    )


def _duplicate(run: Run) -> str:
    return f"offsets {run.first} to {run.next - 1} are kept from another place"


class _KeptOffsets:
    """Runs without common offsets, in the order of their offsets."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._firsts: list[int] = []

    @property
    def end(self) -> int:
        return self.runs[-1].next if self.runs else 0

    def add(self, run: Run) -> None:
        at = bisect_left(self._firsts, run.first)
        self.runs.insert(at, run)
        self._firsts.insert(at, run.first)

    def is_free(self, run: Run) -> bool:
        """Whether no offset of a run is kept."""
        at = bisect_left(self._firsts, run.next)
        return at == 0 or self.runs[at - 1].next <= run.first

    def covers(self, run: Run) -> bool:
        """Whether one run that is kept has all the offsets of another."""
        at = bisect_right(self._firsts, run.first)
        return at > 0 and self.runs[at - 1].next >= run.next
