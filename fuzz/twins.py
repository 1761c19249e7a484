"""The kernel and its plain-Python twin side by side: the same answer, or an AssertionError."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stratalog.errors import CorruptionError
from stratalog.records import _kernel, _reference
from stratalog.records.compression import Decompressor
from stratalog.records.layout import (
    CODEC_MASK,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    Column,
    Ending,
    Row,
)

ENTRIES_MAX = 400  # of one input: the twin is slow
DECOMPRESSED_MAX = 1 << 16
EVERY_COLUMN = int(sum(Column))
REFUSED = "refused"

_decompressor = Decompressor(DECOMPRESSED_MAX)


def exact(data: bytes) -> memoryview:
    """The same bytes in memory that ends where they end: behind a ``bytes`` object lies one byte more,
    and reading that would pass under AddressSanitizer."""
    view = memoryview(array("B", [0]) * len(data))
    view[:] = data
    return view


class Selectors:
    """The first bytes of an input, which choose how the others are looked at."""

    def __init__(self, data: bytes, size: int) -> None:
        self._bytes = iter(data[:size].ljust(size, b"\0"))
        self.rest = data[size:]

    def byte(self) -> int:
        return next(self._bytes)

    def number(self) -> int:
        return self.byte() << 8 | self.byte()

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.byte() % len(options)]


def plain(value: Any) -> Any:
    """Buffers as bytes, all the way down, to compare."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    if value is None or isinstance(value, int | str):
        return value
    return bytes(value)


def agree(call: Callable[[Any], Any]) -> Any:
    """What both kernels answer to ``call(kernel)``. Refusing the arguments is an answer, too."""
    answers = []
    for kernel in (_kernel, _reference):
        try:
            answers.append(plain(call(kernel)))
        except (ValueError, OverflowError):  # C numbers overflow where Python's are out of range
            answers.append(REFUSED)
    assert answers[0] == answers[1], f"kernel {answers[0]}\nreference {answers[1]}"
    return answers[0]


_EDGES = (INT64_MIN, -1, 0, 1, 5, 1000, 1 << 40, INT64_MAX - 1, INT64_MAX)


@dataclass(frozen=True)
class Plan:
    """How Columns are made and driven."""

    want: int
    flags: int
    views: bool
    rows_max: int
    bytes_max: int
    bounds: tuple[int, int, int, int] | None
    expected: int
    lead: int  # bytes before and behind the region in its buffer

    @classmethod
    def read(cls, selectors: Selectors) -> Plan:
        """From nine selectors."""
        first = selectors.byte()
        want = selectors.number()
        sizes = selectors.byte()
        bounded = selectors.byte()
        edges = [_EDGES[number % len(_EDGES)] for number in divmod(selectors.byte(), 16)]
        edges += [_EDGES[number % len(_EDGES)] for number in divmod(selectors.byte(), 16)]
        return cls(
            want=want or EVERY_COLUMN,
            flags=first & 0x1F,
            views=bool(first & 0x20),
            rows_max=(65536, 1, 2, 7)[sizes & 3],
            bytes_max=(8 << 20, 1, 100)[(sizes >> 2) % 3],
            bounds=(edges[0], edges[1], edges[2], edges[3]) if bounded & 1 else None,
            expected=selectors.choice((-1, 0, 1, 10, INT64_MAX)),
            lead=selectors.choice((0, 0, 0, 3)),
        )

    SIZE = 9

    def region(self, data: bytes) -> tuple[Any, int, int]:
        """The buffer, and where the region starts and ends in it."""
        lead = self.lead
        padding = b"\xa5" * lead
        return exact(padding + data + padding), lead, lead + len(data)

    def columns(self, kernel: Any) -> Any:
        columns = kernel.Columns(
            self.want,
            self.flags,
            views=self.views,
            rows_max=self.rows_max,
            bytes_max=self.bytes_max,
            bounds=self.bounds,
        )
        columns.expected = self.expected
        return columns


def header_row(walk: Callable[..., Any], data: Any, position: int, limit: int) -> array[int]:
    row = array("q", bytes(8 * ROW_WIDTH))
    walk(data, position, limit, memoryview(row))
    return row


def decompressed(data: Any, row: array[int], codec_mask: int = CODEC_MASK) -> bytes | None:
    """The payload of the entry with this header row; None where it is damaged."""
    start = row[Row.PAYLOAD_POSITION]
    payload = memoryview(data)[start : start + row[Row.PAYLOAD_SIZE]]
    codec = row[Row.ATTRIBUTES] & codec_mask
    try:
        return bytes(_decompressor.decompress(codec, payload, magic=row[Row.MAGIC]))
    except CorruptionError:
        return None


def drive(
    plan: Plan, data: bytes, payload: bytes | None = None, *, v07_base: int | None = None
) -> Any:
    """All that the Columns of both kernels say about a region; they must say the same.

    ``payload`` stands in the place of what compressed entries would decompress to.
    """
    region, start, limit = plan.region(data)
    given = None if payload is None else exact(payload)
    return agree(lambda kernel: _drive(kernel, plan, region, start, limit, given, v07_base))


def _drive(
    kernel: Any,
    plan: Plan,
    region: Any,
    position: int,
    limit: int,
    given: memoryview | None,
    v07_base: int | None,
) -> list[Any]:
    columns = plan.columns(kernel)
    if v07_base is None:
        fill, add, walk = columns.fill, columns.add, kernel.walk
        options = {"position_base": 7}
        codec_mask = CODEC_MASK
    else:
        fill, add, walk = columns.fill_v07, columns.add_v07, kernel.walk_v07
        options = {"base_offset": v07_base}
        codec_mask = 3
    seen: list[Any] = []
    for _ in range(ENTRIES_MAX):
        reached, ending, reason = fill(region, position, limit, **options)
        assert position <= reached <= limit
        position = reached
        seen.append((position, int(ending), int(reason), columns.rows, columns.used))
        if ending == Ending.COMPRESSED:
            payload = given
            if payload is None:
                content = decompressed(
                    region, header_row(walk, region, position, limit), codec_mask
                )
                if content is None:
                    break
                payload = exact(content)
            reached, ending, reason = add(
                region, position, limit, payload, buffer_index=1, **options
            )
            assert position <= reached <= limit
            position = reached
            seen.append((position, int(ending), int(reason), columns.rows, columns.used))
            if ending == Ending.END:
                continue
        # Not made plain before the end: columns handed out must not change any more.
        seen.append((columns.expected, columns.skipped, columns.take()))
        if ending != Ending.FULL:
            break
    return seen


def signature(answer: Any) -> Any:
    """How an input behaved, roughly: what came to an end why, and a hint of how many rows."""
    if answer == REFUSED:
        return REFUSED
    steps = [step for step in answer if len(step) == 5]
    return tuple((step[1], step[2], min(step[3], 3)) for step in steps[:6])
