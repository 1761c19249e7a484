"""A mapped file that is cut short after some of its compressed batches were decoded must be read on from
where the reader was: from the window's start, those batches would come twice, or look out of order.

Each scenario runs in a process of its own: without the guard, SIGBUS would end it.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record

BATCHES = 300
KEPT = 200

CUT = """
import os, sys
import stratalog
from stratalog.inspect.file.count import count_file
from stratalog.inspect.verify import verify_file
from stratalog.storage.files import filesystem

path, keep, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
plain = filesystem.OsReadableFile.map

def map_and_cut(self, position, size, *, reads_all=False):
    region = plain(self, position, size, reads_all=False)
    os.truncate(path, keep)
    return region

filesystem.OsReadableFile.map = map_and_cut
if how == "scan":
    s = stratalog.scan(path, columns=["offset"])
    offsets = [offset for batch in s for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(len(offsets))), offsets[-5:]
    print(len(offsets), s.ends[-1].pause.position, s.ends[-1].pause.ending.name)
elif how == "count":
    count = count_file(path)
    print(count.records, count.end.pause.position, count.end.pause.ending.name)
else:
    report = verify_file(path, deep=how == "verify-deep")
    (finding,) = report.findings
    ending = "INCOMPLETE" if finding.reason == "short_tail" else finding.reason
    print(report.records, finding.position, ending)
"""


def entries(kind: str) -> list[bytes]:
    """Batches, or magic 1 wrappers, of three records that do not compress: about 9 KB each."""
    rng = random.Random(5)
    made = []
    for n in range(BATCHES):
        records = [
            Record(value=rng.randbytes(3000), timestamp=1000, offset=3 * n + i) for i in range(3)
        ]
        if kind == "batches":
            made.append(build_batch(records, BatchOptions(codec=Codec.LZ4)))
        else:
            made.append(build_messages(records, MessageOptions(codec=Codec.GZIP)))
    return made


@pytest.mark.parametrize("how", ["scan", "count", "verify", "verify-deep"])
@pytest.mark.parametrize("kind", ["batches", "wrappers"])
def test_what_was_read_before_the_loss_is_not_read_again(
    kind: str, how: str, tmp_path: Path
) -> None:
    made = entries(kind)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(made))
    whole = sum(map(len, made[:KEPT]))
    assert whole > 1 << 20  # large enough to be mapped
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(path), str(whole + 100), how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-600:])
    assert done.stdout.split() == [str(3 * KEPT), str(whole), "INCOMPLETE"]
