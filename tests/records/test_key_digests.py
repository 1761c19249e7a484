"""The MD5 of every key with its offset: both kernels say the same, and what the map of offsets holds."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Codec, Ending
from stratalog.records.model import BatchHeader, Record
from tests.records.generated import logs, mutated, mutations
from tests.records.rewriting import STEPS_MAX, header_at, note_log, numbers
from tests.records.test_kernel_agrees_with_reference import checks, decompress
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = pytest.mark.parametrize("kernel", [_kernel, _reference])
aborted = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60), st.integers(0, 60)), max_size=3)


def columns(taken: Any) -> list[tuple[int, ...]]:
    """The rows that were handed over."""
    return list(
        zip(*(memoryview(each).cast("B").cast("q").tolist() for each in taken), strict=True)
    )


def digest_log(kernel: Any, digests: Any, data: bytes, **options: Any) -> list[Any]:
    """Note a log to its end, or to where it stops; return what was said and handed over on the way."""
    seen: list[Any] = []
    position, expected = 0, options.pop("expected", -1)
    batch_options = {name: options[name] for name in ("flags",) if name in options}
    for _ in range(STEPS_MAX):
        position, ending, reason, expected = digests.note(
            data, position, len(data), expected=expected, **options
        )
        seen.append((position, int(ending), int(reason), expected, len(digests)))
        if ending == Ending.FULL:
            seen.append(columns(digests.take()))
            continue
        if ending not in (Ending.COMPRESSED, Ending.CONTROL):
            break
        row = header_at(kernel, data, position)
        if ending == Ending.CONTROL:
            header = BatchHeader.from_row(row)
            position, expected = header.end_position, header.last_offset + 1
            continue
        payload = decompress(data, row)
        if payload is None:
            break
        position, ending, reason, expected = digests.note_batch(
            data, position, len(data), payload, expected=expected, **batch_options
        )
        seen.append((position, int(ending), int(reason), expected))
        if ending != Ending.END:
            break
    return [*seen, columns(digests.take()), digests.take_events(), len(digests)]


@given(logs, mutations, checks, aborted, st.integers(-1, 60), st.sampled_from([1, 3, 1 << 16]))
@settings(
    max_examples=sized(150, 300 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_both_kernels_note_the_same(log, mutation, flags, left_out, expected, rows_max):
    log = mutated(log, mutation)
    options = {"flags": flags, "aborted": numbers(left_out), "expected": expected}
    seen = [
        digest_log(kernel, kernel.KeyDigests(rows_max), log, **options)
        for kernel in (_kernel, _reference)
    ]
    assert seen[0] == seen[1]


@given(logs, aborted)
@settings(max_examples=sized(60, 200 * SCALE), deadline=None)
def test_the_largest_offset_of_a_digest_is_what_the_map_holds(log, left_out):
    options = {"aborted": numbers(left_out)}
    newest = _kernel.OffsetMap(1 << 20)
    note_log(_kernel, newest, log, **options)
    seen = digest_log(_kernel, _kernel.KeyDigests(), log, **options)
    largest: dict[tuple[int, ...], int] = {}
    for first, second, offset in seen[-3]:
        largest[first, second] = offset
    assert len(largest) == len(newest)


@KERNELS
def test_a_row_is_the_md5_of_the_key_and_the_offset(kernel):
    log = build_batch([Record(b"v", b"a"), Record(b"v"), Record(None, b"")], base_offset=7)
    rows = digest_log(kernel, kernel.KeyDigests(), log)[-3]
    digests = [first.to_bytes(8, "little", signed=True) for first, _, _ in rows]
    assert digests == [hashlib.md5(key).digest()[:8] for key in (b"a", b"")]
    assert [offset for _, _, offset in rows] == [7, 9]


@KERNELS
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_transactional_batches_are_events_and_aborted_ones_have_no_rows(kernel, codec):
    def sent(producer_id: int, offset: int) -> bytes:
        options = BatchOptions(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True,
            codec=codec,
        )  # fmt: skip
        return build_batch([Record(b"v", b"k%d" % offset)], options, base_offset=offset)

    marker = build_marker(
        ControlType.ABORT, offset=3, timestamp=1, producer_id=7, producer_epoch=0,
        coordinator_epoch=0,
    )  # fmt: skip
    log = sent(7, 0) + sent(7, 1) + sent(8, 2) + marker + sent(7, 4)
    seen = digest_log(kernel, kernel.KeyDigests(), log, aborted=array("q", [7, 0, 3]))
    assert [offset for _, _, offset in seen[-3]] == [2, 4]
    assert seen[-2] == [(0, 7, True), (2, 8, False), (4, 7, False)]
