"""The newest offset of every key: what a dictionary says, also where keys are spilled, again and again."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import SpillError
from stratalog.inspect.latest.newest_offsets import NewestOffsets
from stratalog.records.columns import DecodedColumns
from stratalog.records.layout import Column
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled


def columns(first: int, keys: Sequence[bytes | None]) -> DecodedColumns:
    """Records of these keys, the offsets counted from the first."""
    valid = bytearray((len(keys) + 7) // 8)
    ends = array("i", [0])
    for row, key in enumerate(keys):
        valid[row // 8] |= (key is not None) << row % 8
        ends.append(ends[-1] + len(key or b""))
    return DecodedColumns(
        len(keys),
        {
            Column.OFFSET: (array("q", range(first, first + len(keys))),),
            Column.KEY: (valid, ends, b"".join(key or b"" for key in keys)),
        },
    )


def newest_of(keys: Sequence[bytes | None]) -> list[int]:
    return sorted({key: offset for offset, key in enumerate(keys) if key is not None}.values())


def note_all(newest: NewestOffsets, keys: Sequence[bytes | None], step: int = 100) -> None:
    for first in range(0, len(keys), step):
        newest.note(columns(first, keys[first : first + step]))


@settings(max_examples=sized(40, 200 * SCALE))
@given(
    st.lists(st.none() | st.just(b"") | st.integers(0, 150).map(b"%d".__mod__), max_size=600),
    st.integers(200, 4000),
)
def test_newest_offsets_are_those_of_a_dictionary(keys, memory_bytes):
    """With a table of four to a hundred keys, most are spilled, and divided again."""
    with closing(NewestOffsets(memory_bytes)) as newest:
        note_all(newest, keys)
        assert newest.keyless == keys.count(None)
        assert newest.offsets().tolist() == newest_of(keys)


def test_more_keys_than_fit_are_spilled_and_the_files_are_gone_afterwards(tmp_path):
    keys = [b"key-%d" % (n * 7919 % 60_000) for n in range(90_000)]
    with closing(NewestOffsets(64 << 10, str(tmp_path))) as newest:
        note_all(newest, keys, 5000)
        assert newest.is_spilled
        assert list(tmp_path.iterdir()) == []  # they have no names: a crash leaves nothing
        assert newest.offsets().tolist() == newest_of(keys)
    assert list(tmp_path.iterdir()) == []


def test_keys_that_fit_touch_no_file(tmp_path):
    with closing(NewestOffsets(64 << 10, str(tmp_path / "missing"))) as newest:
        note_all(newest, [b"%d" % (n % 1000) for n in range(5000)])
        assert not newest.is_spilled
        assert newest.offsets().tolist() == list(range(4000, 5000))


def test_a_missing_directory_is_one_error_that_names_it(tmp_path):
    missing = str(tmp_path / "missing")
    with (
        closing(NewestOffsets(64 << 10, missing)) as newest,
        pytest.raises(SpillError, match=r"missing: keys cannot be spilled .*; raise memory_bytes"),
    ):
        note_all(newest, [b"%d" % n for n in range(5000)])


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a full disk to test with"
)
def test_a_full_disk_is_one_error(monkeypatch):
    """What is buffered fails when it is flushed, and again when the file is closed."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115, PTH123
    with (
        closing(NewestOffsets(64 << 10)) as newest,
        pytest.raises(SpillError, match="No space left on device") as caught,
    ):
        note_all(newest, [b"%d" % n for n in range(50_000)])
    assert caught.value.errno == errno.ENOSPC
