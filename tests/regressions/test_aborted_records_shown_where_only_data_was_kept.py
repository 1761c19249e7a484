"""A backup of the data files alone has no transaction index. Readers of what is committed took that for
"nothing was aborted", and showed aborted records; a broker makes the index anew from the batches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StratalogError
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.records.columns import RECORD_COLUMNS, Selection, records_of
from stratalog.storage.views.log_view import Isolation
from tests.judges.peers.golden import golden_set


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    shutil.copytree(golden_set("v2-transactions").path, root)
    return root


def drop(root: Path, *suffixes: str) -> None:
    for path in root.glob("*-*/*"):
        if path.is_file() and (not path.name.endswith(".log") and path.name.endswith(suffixes)):
            path.unlink()


def opened(root: Path) -> list[tuple[str, int, int]]:
    found = []
    with stratalog.open(root, read_only=True) as logs:
        for topic in logs.topics():
            read = logs.read(topic, isolation="read_committed").records()
            found += [(record.topic, record.partition, record.offset) for record in read]
    return sorted(found)


def ranged(root: Path) -> list[tuple[str, int, int]]:
    found = []
    for source in find_sources(str(root)).partitions:
        assert source.topic_partition is not None
        plan = plan_range(source, isolation=Isolation.COMMITTED)
        for _, taken in RangeReader(Selection(columns=RECORD_COLUMNS)).read(plan):
            found += [(*source.topic_partition, record.offset) for record in records_of(taken)]
    return sorted(found)


@pytest.mark.parametrize("suffixes", [("",), (".index", ".txnindex", ".timeindex"), (".index",)])
def test_aborted_records_are_left_out_where_only_data_was_kept(
    kept: Path, suffixes: tuple[str, ...]
) -> None:
    wanted = opened(kept)
    assert ranged(kept) == wanted
    drop(kept, *suffixes)
    assert opened(kept) == wanted
    assert ranged(kept) == wanted


def test_damage_in_a_segment_without_indexes_is_told(kept: Path) -> None:
    drop(kept, "")
    segments = sorted(kept.glob("*-*/*.log"))
    first = next(path for path in segments if path.stat().st_size > 200)
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    with pytest.raises(StratalogError):
        ranged(kept)
