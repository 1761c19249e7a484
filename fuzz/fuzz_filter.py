"""Fuzz target: the map of newest offsets and the filter of batches, held against the reference.

The first bytes choose the map's size, what the filter is given, what becomes of control batches, and how
the rest is taken: as a region of log; as the records of a batch whose header and CRC are made to fit; or as
what a compressed batch or wrapper decompresses to. Both kernels note the same and leave the same bytes, and
these are whole batches with sound headers.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fuzz import seeds as made
from fuzz.fuzz_records import batch_around
from fuzz.twins import ENTRIES_MAX, Selectors, agree, decompressed, exact, header_row
from stratalog.records import _kernel
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_MASK,
    INT64_MAX,
    ROW_WIDTH,
    Check,
    Codec,
    Ending,
    Row,
)

TARGET_NAME = "filter"
PLAN_SIZE = 12
SELECTORS = PLAN_SIZE + 7
REGION, RECORDS, PAYLOAD, WRAPPER = range(4)
OFFSETS = (-1, 0, 1, 5, 1000, 1 << 40, INT64_MAX)
TIMES = (1_700_000_000_000, 0, -1, INT64_MAX, -INT64_MAX - 1, 5)


@dataclass(frozen=True)
class Plan:
    """What the map and the filter are given."""

    flags: int
    slots: int
    load_factor: float
    first_offset: int
    options: dict[str, Any]
    segment: dict[str, Any]
    expected: int
    has_map: bool
    discards: bool
    keeps_header: bool
    is_marker_of_none: bool
    lead: int  # bytes before and after the region in its buffer

    @classmethod
    def read(cls, selectors: Selectors) -> Plan:
        """From PLAN_SIZE selectors."""
        flags = selectors.byte() & 0x1F
        bits = selectors.byte()
        more = selectors.byte()
        drop, every = selectors.byte(), selectors.byte()
        latest, below = selectors.choice(OFFSETS), selectors.choice(OFFSETS)
        return cls(
            flags=flags,
            slots=selectors.choice((2, 3, 10, 64, 5000)),
            load_factor=selectors.choice((0.9, 1.0, 0.5)),
            first_offset=selectors.choice(OFFSETS),
            options={
                "drop": array("q", range(0, drop & 0x3F, 1 + every % 3)) if bits & 1 else None,
                "erases": bool(bits & 2),
                "latest_offset": None if bits & 4 else latest,
                "now": TIMES[(more & 0xF) % len(TIMES)],
                "delete_retention": TIMES[(more >> 4) % len(TIMES)],
                "round_end": None if bits & 8 else every & 0x1F,
                "last_batches": array("q", [every & 7, every >> 3 & 7, 9, every]),
                "bytes_max": selectors.choice((4 << 20, 1, 100)),
                "flags": flags,
            },
            segment={
                "below": None if bits & 16 else below,
                "aborted": array("q", [every & 3, 0, drop]) if bits & 32 else None,
                "keeps_legacy_deletes": bool(bits & 64),
            },
            expected=selectors.choice((-1, 0, 1, 10)),
            has_map=bool(bits & 128),
            discards=bool(every & 16),
            keeps_header=bool(every & 32),
            is_marker_of_none=bool(every & 64),
            lead=3 if every & 128 else 0,
        )

    def region(self, data: bytes) -> tuple[Any, int, int]:
        """The buffer, and where the region starts and ends in it."""
        padding = b"\xa5" * self.lead
        return exact(padding + data + padding), self.lead, self.lead + len(data)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    plan = Plan.read(selectors)
    lane = selectors.byte() % 4
    chosen = (selectors.number() & 0x3FF, *(selectors.byte() for _ in range(4)))
    region, payload = selectors.rest, None
    if lane == RECORDS:
        region = batch_around(region, Codec.NONE, chosen)
    elif lane == PAYLOAD:
        region, payload = batch_around(b"?", Codec.GZIP, chosen), exact(region)
    elif lane == WRAPPER:
        region, payload = wrapper(chosen), exact(region)
    buffer, start, limit = plan.region(region)
    noted = agree(lambda kernel: note(kernel, plan, buffer, start, limit, payload)[0])
    seen = agree(lambda kernel: filtered(kernel, plan, buffer, start, limit, payload))
    check_left(seen)
    return lane, tuple(step[1:3] for step in noted[:4]), tuple(step[1:3] for step in seen[1:5])


def wrapper(chosen: tuple[int, ...]) -> bytes:
    """A wrapper of magic 0 or 1 whose content may be anything."""
    offset, magic, attributes = chosen[0], chosen[1] & 1, chosen[3] & 0x08 | Codec.GZIP
    body = struct.pack(">bB", magic, attributes)
    if magic:
        body += struct.pack(">q", TIMES[chosen[4] % len(TIMES)])
    body += struct.pack(">ii", -1, 1) + b"?"
    return struct.pack(">qiI", offset, 4 + len(body), _kernel.crc32(body)) + body


def content(
    kernel: Any, region: Any, position: int, limit: int, given: memoryview | None
) -> tuple[array[int], memoryview | None]:
    """The header of the batch at ``position``, and its payload: None if it is damaged."""
    row = header_row(kernel.walk, region, position, limit)
    if given is not None and row[Row.ATTRIBUTES] & CODEC_MASK:
        return row, given
    found = decompressed(region, row)
    return row, None if found is None else exact(found)


def note(
    kernel: Any, plan: Plan, region: Any, position: int, limit: int, given: memoryview | None
) -> tuple[list[Any], Any]:
    """All that a map says about a region, and the map."""
    newest = kernel.OffsetMap(24 * plan.slots, plan.load_factor)
    options = {"first_offset": plan.first_offset, "flags": plan.flags}
    expected = plan.expected
    seen: list[Any] = []
    for _ in range(ENTRIES_MAX):
        reached, ending, reason, expected = newest.note(
            region, position, limit, expected=expected, aborted=plan.segment["aborted"], **options
        )
        assert position <= reached <= limit
        position = reached
        seen.append((position, int(ending), int(reason), expected))
        if ending == Ending.COMPRESSED:
            _, payload = content(kernel, region, position, limit, given)
            if payload is None:
                break
            position, ending, reason, expected = newest.note_batch(
                region, position, limit, payload, expected=expected, **options
            )
            seen.append((position, int(ending), int(reason), expected))
            if ending == Ending.END:
                continue
        break
    assert len(newest) <= newest.keys_max
    seen.append(
        (len(newest), newest.latest_offset, newest.records, newest.get(b""), newest.get(b"k"))
    )
    return seen, newest


def filtered(
    kernel: Any, plan: Plan, region: Any, position: int, limit: int, given: memoryview | None
) -> list[Any]:
    """All that a filter says about a region; the first entry is what it leaves."""
    newest = note(kernel, plan, region, position, limit, given)[1] if plan.has_map else None
    batch_filter = kernel.BatchFilter(newest, **plan.options)
    batch_filter.begin_segment(plan.expected, **plan.segment)
    seen: list[Any] = []
    left: list[Any] = []
    for _ in range(ENTRIES_MAX):
        reached, ending, reason = batch_filter.filter(region, position, limit)
        assert position <= reached <= limit
        position = reached
        seen.append((position, int(ending), int(reason), batch_filter.used, batch_filter.expected))
        if ending in (Ending.COMPRESSED, Ending.CONTROL):
            row, payload = content(kernel, region, position, limit, given)
            if payload is None:
                break
            is_control = row[Row.MAGIC] == 2 and bool(row[Row.ATTRIBUTES] & CONTROL_MASK)
            answer = batch_filter.filter_batch(
                region,
                position,
                limit,
                payload,
                discards=is_control and plan.discards,
                keeps_header=plan.keeps_header,
                is_marker_of_none=is_control and plan.is_marker_of_none,
            )
            position, ending, reason = answer[:3]
            seen.append((position, int(ending), int(reason), *answer[3:]))
            if ending == Ending.END:
                continue
        if ending != Ending.FULL:
            break
        seen.append((0, 0, 0, batch_filter.take_events()))
        left.append(batch_filter.take())
    left.append(batch_filter.take())
    seen.append((0, 0, 0, batch_filter.counts, batch_filter.take_events()))
    return [left, *seen]


def check_left(seen: Any) -> None:
    """What a filter leaves is whole batches with sound headers."""
    left = b"".join(seen[0])
    row = array("q", bytes(8 * ROW_WIDTH))
    position = 0
    while position < len(left):
        held, reached, ending, reason, _ = _kernel.walk(left, position, len(left), memoryview(row))
        assert held == 1, (position, ending, reason)
        position = row[Row.POSITION] + row[Row.SIZE]
        assert reached == position


def repair(data: bytes) -> bytes:
    if len(data) > PLAN_SIZE and data[PLAN_SIZE] % 4 == REGION:
        return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])
    return data


def seeds() -> Iterable[bytes]:
    strict = int(Check.CRC | Check.ORDER)
    plans = (
        bytes(PLAN_SIZE),
        bytes((strict, 0xFC, 0, 0, 0, 0, 0, 3, 0, 1, 0, 0)),
        bytes((strict, 0x95, 0x15, 40, 0x57, 4, 0, 4, 1, 1, 0, 1)),
        bytes((0, 0x93, 0x20, 9, 1, 4, 0, 2, 0, 1, 1, 0)),
    )
    for plan in plans:
        for region in (*made.batches(), *made.message_sets(), *made.golden_entries()):
            yield plan + bytes(SELECTORS - PLAN_SIZE) + region
        for batch in made.batches():
            if not batch[22] & CODEC_MASK:
                count = batch[BATCH_HEADER_SIZE - 2 : BATCH_HEADER_SIZE]
                for lane in (RECORDS, PAYLOAD):
                    yield plan + bytes((lane, *count, 9, 0, 0, 0x22)) + batch[BATCH_HEADER_SIZE:]
        for messages in made.message_sets():
            yield plan + bytes((WRAPPER, 0, 9, 1, 0, 0, 0)) + messages
