"""``count F ./F`` counted the records of one file twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.inspect.partition.sources import find_sources
from tests.cli.runner import run
from tests.inspect.logs import batch, segment


@pytest.mark.parametrize("name", ["00000000000000000000.log", "some.bytes"])
def test_file_that_is_named_twice_is_read_once(tmp_path, monkeypatch, name):
    path = Path(segment(tmp_path, 0, batch(0))).rename(tmp_path / "orders-0" / name)
    monkeypatch.chdir(tmp_path / "orders-0")
    spellings = [f"./{name}", name, str(path), f"../orders-0/{name}"]
    for first in spellings:
        named = [first, *spellings]
        assert find_sources(named).files == (first,)
        for verb in ("count", "verify", "ls"):
            assert [row["records"] for row in run(verb, *named).rows()] == [3]
        assert len(run("cat", *named).rows()) == 3


def test_files_of_one_name_in_two_folders_are_two(tmp_path):
    one = segment(tmp_path, 0, batch(0))
    two = segment(tmp_path, 0, batch(0), partition="orders-1")
    assert find_sources([one, two, one]).files == (one, two)
