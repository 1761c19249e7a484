"""A damaged commit marker looked like a transaction that is still open: read_committed stopped before it,
and the records of the transaction and all after it were missing, without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.records.scan import scan_batches
from tests.cli.runner import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["before"])
        with logs.transaction() as transaction:
            transaction.append("a", ["committed"])
        logs.append("a", ["after"])
    path = tmp_path / "a-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    (marker,) = [header for header in scan_batches(bytes(data)) if header.is_control]
    data[marker.position + 50] ^= 1  # the producer id
    path.write_bytes(data)
    return tmp_path


def test_damaged_marker_is_an_error_for_every_reader_of_what_is_committed(root: Path) -> None:
    with pytest.raises(CorruptionError, match="crc_mismatch"):
        stratalog.scan(root, isolation="read_committed").to_table()
    with (
        stratalog.open(root, read_only=True) as logs,
        pytest.raises(CorruptionError, match="crc_mismatch"),
    ):
        logs.read("a").to_table()
    assert run("cat", "--isolation", "read_committed", root).code == 1


def test_open_transaction_in_intact_files_is_no_error(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["before"])
        transaction = logs.transaction()
        transaction.append("a", ["undecided"])
        logs.append("a", ["after"])
        assert stratalog.scan(tmp_path, isolation="read_committed").to_table().num_rows == 1
        with stratalog.open(tmp_path, read_only=True) as reader:
            assert reader.read("a").to_table().num_rows == 1
