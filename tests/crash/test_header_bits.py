"""Every header bit that no CRC covers, flipped: each reader answers right or with a typed error.

A batch (magic 2) has 17 such bytes: base offset, size, leader epoch and magic; a message (magic 0 and 1)
has 12: offset and size. Each of their bits is flipped in the first, a middle and the last batch of a middle
segment and of the last one. ``undetectable`` is the offset of the very last batch of a log, raised, where no
clean shutdown has left a recovery point: nothing follows it that could contradict, and a gap before it is
legal. After a clean shutdown every reader must refuse it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.crash.header_bits import FORMATS, Case, Flip, Format, Sound, cases, sound_log

Counted = Callable[[str, object], None]


def flips(form: Format, sound: Sound) -> Iterable[Flip]:
    return (Flip(batch, bit) for batch in sound.chosen() for bit in range(8 * form.head_bytes))


def sweep(
    form: Format, record_property: Counted, choose: Callable[[int, list[Case]], list[Case]]
) -> None:
    sound = sound_log(form.name)
    seen: Counter[tuple[str, str]] = Counter()
    for number, flip in enumerate(flips(form, sound)):
        damaged = flip.apply(sound.disk)
        for case in choose(number, cases(sound, flip)):
            seen[case.reader, case.outcome(flip, damaged)] += 1
    assert {outcome for _, outcome in seen} >= {"right", "error"}
    for (reader, outcome), count in seen.items():
        record_property(f"counted: flipped header bits, {reader}: {outcome}", count)


def test_no_header_bit_loses_records_in_silence(record_property: Counted) -> None:
    """Every bit is flipped; each time another reader and other bounds are tried."""

    def some(number: int, listed: list[Case]) -> list[Case]:
        return [listed[(5 * number) % len(listed)]]

    for form in FORMATS[:3:2]:
        sweep(form, record_property, some)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", FORMATS, ids=[form.name for form in FORMATS])
def test_no_header_bit_loses_records_with_any_reader(
    form: Format, record_property: Counted
) -> None:
    sweep(form, record_property, lambda _, listed: listed)
