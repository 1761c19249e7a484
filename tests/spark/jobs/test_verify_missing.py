"""``spark verify`` finds missing records and damaged side files, with the rows of ``stratalog verify``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stratalog.spark import jobs
from stratalog.spark.jobs.run import file_parts
from tests.cli.runner import run
from tests.judges.peers.golden import golden_set

pytestmark = pytest.mark.slow


def rows(frame):
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_rows_are_those_of_the_plain_command(spark, tmp_path, monkeypatch):
    """Files in many parts: their indexes are compared part by part."""
    monkeypatch.setattr(file_parts, "PART_BYTES_MIN", 2000)
    monkeypatch.setattr(file_parts, "OPEN_BYTES", 0)
    statuses = set()
    for number, (name, damage) in enumerate(
        [
            ("v2-plain", None),
            ("v2-transactions", None),
            ("v2-plain", "emptied"),
            ("v2-transactions", "index"),
            ("v2-plain", "time index"),
            ("v2-transactions", "folder"),
            ("v2-plain", "checkpoint"),
        ]
    ):
        root = Path(shutil.copytree(golden_set(name).path, tmp_path / str(number)))
        partition = min(root.glob("[a-z]*-0"))
        _, middle, *_ = sorted(partition.glob("*.log"))
        if damage == "emptied":
            middle.write_bytes(b"")
        elif damage in ("index", "time index"):
            path = middle.with_suffix(".index" if damage == "index" else ".timeindex")
            data = bytearray(path.read_bytes())
            data[-1] ^= 64
            path.write_bytes(data)
        elif damage == "folder":
            shutil.rmtree(partition)
        elif damage == "checkpoint":
            (root / "recovery-point-offset-checkpoint").write_text("0\n9\n")
        plain = run("verify", root)
        assert rows(jobs.verify(spark, str(root))) == plain.rows()
        assert plain.code == (0 if damage is None else 1), damage
        statuses |= {row["status"] for row in plain.rows()}
    assert statuses == {"ok", "missing", "damaged"}
