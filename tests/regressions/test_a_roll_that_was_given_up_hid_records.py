"""A segment that was begun and given up, whose name a power cut brought back: readers ended the log there,
at offset 5 of ten, and began at offset 5 with nothing. The loader knows this state and removes the file.

Found by a review of folders that nobody has opened for writing since the crash."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.inspect.partition.sources import find_sources, relisted
from tests.cli.runner import run
from tests.inspect.logs import batch, segment


@pytest.mark.parametrize("nothing", [b"", bytes(5000)])
def test_readers_go_on_where_the_segment_before_did(tmp_path, nothing):
    folder = tmp_path / "orders-0"
    segment(tmp_path, 0, b"".join(batch(offset, 1) for offset in range(10)))
    segment(tmp_path, 5, nothing)
    (row,) = run("ls", folder).rows()
    assert (row["records"], row["start_offset"], row["end_offset"]) == (10, 0, 10)
    assert row["status"] == "ok"
    assert run("count", folder).rows()[0]["records"] == 10
    for text, found in (("5:", range(5, 10)), ("-3", range(7, 10)), ("2:7", range(2, 7))):
        table = stratalog.scan(str(tmp_path), offsets=text, columns=["offset"]).to_table()
        assert table["offset"].to_pylist() == list(found), text
        assert run("count", "--offsets", text, folder).rows()[0]["records"] == len(found)
    (source,) = find_sources(str(folder)).partitions
    assert relisted(source) == source
