"""Values of more than 2 GiB in one slice of an Arrow batch: a cast to 32 bits refused them, or began its
offsets again and stored others. Slices are bounded by their bytes; here the bound is a small one."""

from __future__ import annotations

from typing import Any

import pytest

import stratalog
from stratalog.errors import InvalidRecordError
from stratalog.manager.logs import Logs
from stratalog.manager.write import records as rows
from tests.manager.logdirs import values

pa = pytest.importorskip("pyarrow")

LIMIT = 100
GIVEN = [None if n % 7 == 3 else b"%d." % n * (n % 5 * 4) for n in range(200)]


def cast(kind: Any) -> Any:
    return pa.array(GIVEN, pa.binary()).cast(kind)


def dictionary(values_kind: Any) -> Any:
    encoded = pa.array(GIVEN, pa.binary()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(values_kind))


COLUMNS = {
    "large_binary": lambda: cast(pa.large_binary()),
    "large_string": lambda: cast(pa.large_string()),
    "binary_view": lambda: cast(pa.binary_view()),
    "string_view": lambda: cast(pa.string()).cast(pa.string_view()),
    "dictionary": lambda: dictionary(pa.binary()),
    "dictionary of large ones": lambda: dictionary(pa.large_binary()),
    "dictionary of views": lambda: dictionary(pa.binary_view()),
}


@pytest.fixture
def casts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is cast at once."""
    seen: list[Any] = []
    plain = rows._plain_columns

    def spy(batch: Any) -> Any:
        seen.append(batch)
        return plain(batch)

    monkeypatch.setattr(rows, "_ARROW_BYTES_AT_ONCE", LIMIT)
    monkeypatch.setattr(rows, "_plain_columns", spy)
    return seen


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path, sync=False) as opened:
        opened.create("a")
        yield opened


@pytest.mark.parametrize("name", COLUMNS)
def test_no_more_is_cast_at_once_than_can_be(logs: Logs, casts: list[Any], name: str) -> None:
    batch = pa.record_batch({"value": COLUMNS[name]()})
    logs.append("a", batch.slice(10))
    logs.append("a", batch.slice(0, 10))
    assert values(logs, "a") == GIVEN[10:] + GIVEN[:10]
    sizes = [sum(len(v.as_py() or b"") for v in each.column("value")) for each in casts]
    assert sum(sizes) == sum(len(each or b"") for each in GIVEN)
    assert all(size <= LIMIT or each.num_rows == 1 for size, each in zip(sizes, casts, strict=True))


def test_headers_count_too(logs: Logs, casts: list[Any]) -> None:
    kind = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.binary_view())]))
    headers = [[{"key": "k" * 20, "value": b"v" * 20}] * (n % 3) for n in range(30)]
    values_given = [str(n) for n in range(30)]
    logs.append("a", pa.record_batch({"value": values_given, "headers": pa.array(headers, kind)}))
    stored = list(logs.read("a").records())
    assert [len(each.headers) for each in stored] == [n % 3 for n in range(30)]
    assert len(casts) > 10


def test_slice_that_lies_far_behind_is_brought_near(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets need more than 32 bits, however few its values are. None is so far behind here."""
    joined: list[Any] = []
    concat = pa.concat_arrays

    def spy(arrays: Any) -> Any:
        joined.append(arrays)
        return concat(arrays)

    monkeypatch.setattr(rows, "INT32_MAX", 500)
    monkeypatch.setattr(rows, "_ARROW_BYTES_AT_ONCE", LIMIT)
    monkeypatch.setattr(pa, "concat_arrays", spy)
    logs.append("a", pa.record_batch({"value": cast(pa.large_binary())}))
    assert joined
    assert values(logs, "a") == GIVEN


def test_one_record_that_is_too_large_is_refused(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_ARROW_BYTES_AT_ONCE", LIMIT)
    monkeypatch.setattr(rows, "INT32_MAX", 500)
    given = pa.array([b"small", b"x" * 501], pa.large_binary())
    with pytest.raises(InvalidRecordError, match="a record of 501 bytes"):
        logs.append("a", pa.record_batch({"value": given}))
