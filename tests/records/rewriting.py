"""What the tests of maps and filters share: both driven to the end of a log, whatever stops them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import ROW_WIDTH, Check, Column, Ending
from stratalog.records.model import BatchHeader, Record
from stratalog.records.rebuild import rebuild_batch
from stratalog.records.scan import STRICT, scan_batches
from tests.records.test_kernel_agrees_with_reference import decompress

STEPS_MAX = 400

#: For a control batch: whether it is discarded, its header is kept, and it ends an empty transaction.
Decision = tuple[bool, bool, bool]


def numbers(rows: Iterable[tuple[int, ...]]) -> array[int]:
    """Transactions or last batches as the kernel takes them."""
    return array("q", chain.from_iterable(sorted(rows)))


def header_at(kernel: Any, data: bytes, position: int) -> array[int]:
    row = array("q", bytes(8 * ROW_WIDTH))
    kernel.walk(data, position, len(data), memoryview(row))
    return row


def note_log(kernel: Any, newest: Any, data: bytes, **options: Any) -> list[Any]:
    """Note a log to its end, or to where it stops; return what was said on the way."""
    seen: list[Any] = []
    position = 0
    batch_options = {name: options[name] for name in ("first_offset", "flags") if name in options}
    expected = options.pop("expected", -1)
    for _ in range(STEPS_MAX):
        position, ending, reason, expected = newest.note(
            data, position, len(data), expected=expected, **options
        )
        seen.append((position, int(ending), int(reason), expected))
        if ending == Ending.COMPRESSED:
            payload = decompress(data, header_at(kernel, data, position))
            if payload is None:
                break
            position, ending, reason, expected = newest.note_batch(
                data, position, len(data), payload, expected=expected, **batch_options
            )
            seen.append((position, int(ending), int(reason), expected))
            if ending == Ending.END:
                continue
        break
    seen.append((len(newest), newest.latest_offset, newest.records, newest.is_full))
    return seen


def filter_log(
    kernel: Any,
    batch_filter: Any,
    data: bytes,
    decide: Callable[[BatchHeader], Decision] = lambda _: (False, False, False),
) -> tuple[list[Any], bytes]:
    """Filter a log to its end, or to where it stops; return what was said on the way, and the output."""
    seen: list[Any] = []
    out = bytearray()
    position = 0
    for _ in range(STEPS_MAX):
        position, ending, reason = batch_filter.filter(data, position, len(data))
        seen.append((position, int(ending), int(reason), batch_filter.used, batch_filter.expected))
        if ending in (Ending.COMPRESSED, Ending.CONTROL):
            row = header_at(kernel, data, position)
            header = BatchHeader.from_row(row)
            payload = decompress(data, row)
            if payload is None:
                break
            choices = decide(header) if header.is_control else (False, False, False)
            names = ("discards", "keeps_header", "is_marker_of_none")
            position, ending, reason, records, new = batch_filter.filter_batch(
                data, position, len(data), payload, **dict(zip(names, choices, strict=True))
            )
            seen.append((position, int(ending), int(reason), records, new))
            if records is not None:
                batch_filter.put(rebuild_batch(header, records, new))
            if ending == Ending.END:
                continue
        if ending == Ending.FULL:
            seen.append(tuple(batch_filter.take_events()))
            out += bytes(batch_filter.take())
            continue
        break
    seen += [tuple(batch_filter.counts), tuple(batch_filter.take_events())]
    return seen, bytes(out) + bytes(batch_filter.take())


def read_log(data: bytes) -> list[Record]:
    """All records of a sound log, control records among them."""
    columns = Column.OFFSET | Column.TIMESTAMP_MS | Column.TIMESTAMP_TYPE | Column.KEY
    everything = Selection(
        columns=columns | Column.VALUE | Column.HEADERS,
        check=Check.CRC | Check.ORDER | Check.INCLUDE_CONTROL,
    )
    return list(decode_records(data, everything))


def headers_of(data: bytes) -> list[BatchHeader]:
    """The headers of a sound log."""
    scan = scan_batches(data, check=STRICT)
    found = list(scan)
    assert scan.end.ending == Ending.END, scan.end
    return found
