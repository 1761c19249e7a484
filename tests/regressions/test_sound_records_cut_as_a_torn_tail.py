"""Recovery cut sound records as a torn tail where a head byte that no CRC covers was wrong, and more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import DamagedLogError
from stratalog.records import kernel
from stratalog.records.layout import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, SIZE_AT
from tests.storage.logs import bases, batch, name, offsets, open_log, small


def last(offset: int) -> bytearray:
    return bytearray(
        batch(*[b"of fifty"] * 50, timestamp=[1_700_000_000_000] * 50, base_offset=offset)
    )


def refused(folder: Path, data: bytes | bytearray, base: int = 0) -> DamagedLogError:
    path = folder / name(base, ".log")
    path.write_bytes(data)
    with pytest.raises(DamagedLogError) as caught:
        open_log(folder)
    assert path.read_bytes() == data
    return caught.value


@pytest.mark.parametrize("magic", [0, 1, 3, 6, 0x12, 0x82])
def test_a_last_batch_whose_magic_is_wrong(tmp_path: Path, magic: int) -> None:
    data = last(1)
    data[MAGIC_AT] = magic
    assert "match their CRC" in str(refused(tmp_path, small(0) + data))
    # Nor where a torn one stands behind it.
    if magic > 2:
        assert "match their CRC" in str(refused(tmp_path, small(0) + data + small(51)[:40]))


@pytest.mark.parametrize("behind", [b"", bytes(4096), small(51)[:40], small(51)[:9], b"\1" * 7])
@pytest.mark.parametrize("bit", range(0, 31, 3))
def test_a_last_batch_whose_size_has_a_flipped_bit(tmp_path: Path, bit: int, behind: bytes) -> None:
    data = last(1)
    size = int.from_bytes(data[SIZE_AT : SIZE_AT + 4], "big") ^ (1 << bit)
    data[SIZE_AT : SIZE_AT + 4] = size.to_bytes(4, "big")
    assert "match their CRC" in str(refused(tmp_path, small(0) + data + behind))


def test_a_last_batch_of_any_wrong_size_with_zeros_behind(tmp_path: Path) -> None:
    data = last(1)
    data[SIZE_AT : SIZE_AT + 4] = b"\0\3\2\1"
    assert "match their CRC" in str(refused(tmp_path, small(0) + data + bytes(300_000)))


def test_sound_batches_behind_an_offset_whose_first_bytes_change(tmp_path: Path) -> None:
    base = (1 << 48) - 3
    batches = [batch(b"value", base_offset=base + number) for number in range(13)]
    data = bytearray(b"".join(batches))
    data[3 * len(batches[0]) - 3] ^= 1
    assert "intact batches follow" in str(refused(tmp_path, data, base))


@pytest.mark.parametrize("bits", [0x0080, 0x0100, 0x8000])
def test_sound_batches_with_attributes_that_nobody_knows(tmp_path: Path, bits: int) -> None:
    sound = []
    for number in range(2, 7):
        data = bytearray(small(number))
        attributes = int.from_bytes(data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big") | bits
        data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
        data[CRC_AT : CRC_AT + 4] = kernel.crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
        sound.append(data)
    damaged = bytearray(small(1))
    damaged[70] ^= 1
    assert "intact batches follow" in str(refused(tmp_path, small(0) + damaged + b"".join(sound)))


def test_a_second_cut_at_the_same_place_keeps_what_the_first_one_kept(tmp_path: Path) -> None:
    path = tmp_path / name(0, ".log")
    kept = []
    for number in range(3):
        data = small(0) + bytes(600) + b"".join(small(each) for each in range(9, 10 + number))
        path.write_bytes(data)
        log = open_log(tmp_path)
        (cut,) = log.report.cuts
        assert cut.kept_as is not None
        kept.append((Path(cut.kept_as), data[cut.position :]))
        log.abandon()
    assert len({path for path, _ in kept}) == 3
    for path, data in kept:
        assert path.read_bytes() == data


@pytest.mark.parametrize("blank", [b"", bytes(4096), bytes(3 << 20)])
@pytest.mark.parametrize(
    ("first", "base", "expected"),
    [
        (lambda: b"".join(map(small, range(10))), 5, range(10)),  # given up: the one before went on
        (lambda: b"".join(map(small, range(10)))[:-20], 10, range(9)),  # torn, and just begun
    ],
)
def test_a_segment_that_was_preallocated_holds_nothing(
    tmp_path: Path, first: Callable[[], bytes], base: int, expected: range, blank: bytes
) -> None:
    """It counted as data that follows, and the log was refused."""
    (tmp_path / name(0, ".log")).write_bytes(first())
    (tmp_path / name(base, ".log")).write_bytes(blank)
    log = open_log(tmp_path)
    assert (offsets(log), bases(log)) == (list(expected), [0])
    log.close()
