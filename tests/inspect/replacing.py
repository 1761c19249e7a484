"""A broker's replacement of segments, step by step: what compaction does to a partition's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from stratalog.records.control import ControlType
from stratalog.records.scan import scan_batches
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.segment.scan import rebuild_index
from stratalog.storage.segment.sparse_index import IndexLimits
from tests.storage.logs import batch, end_txn, in_txn, open_log

KINDS = (".log", ".index", ".timeindex", ".txnindex")
CONFIGS = {"internal.segment.bytes": 400, "index.interval.bytes": 64}
Step = Callable[[], object]


def fill(folder: Path) -> None:
    log = open_log(folder, CONFIGS)
    for number in range(0, 60, 6):
        log.append(batch(b"plain %d" % number))
        log.append(in_txn(7, number // 3, b"aborted %d" % number))
        log.append(batch(b"between %d" % number))
        end_txn(log, ControlType.ABORT, 7)
        log.append(in_txn(7, number // 3 + 1, b"committed %d" % number))
        end_txn(log, ControlType.COMMIT, 7)
    log.close()


def parts(path: Path) -> Iterator[Path]:
    """The files of a segment, by its data file."""
    for kind in KINDS:
        each = path.with_suffix(kind)
        if each.exists():
            yield each


def write_replacement(paths: list[Path], *, is_compacted: bool) -> list[Path]:
    """One segment for all of these, each file of it as ``.cleaned``."""
    base, data, txns = paths[0], b"", b""
    for path in paths:
        old = path.read_bytes()
        for number, header in enumerate(scan_batches(old)):
            if not is_compacted or number % 4 or header.is_transactional:
                data += old[header.position : header.end_position]
        aborted = path.with_suffix(".txnindex")
        txns += aborted.read_bytes() if aborted.exists() else b""
    made = {".log": data}
    base.with_suffix(".log.cleaned").write_bytes(data)
    file = OsFileSystem().open_readable(str(base.with_suffix(".log.cleaned")))
    index = rebuild_index(file, int(base.stem), IndexLimits(64), len(data))
    file.close()
    index.close_times()
    made |= {".index": bytes(index.offsets), ".timeindex": bytes(index.times)}
    if txns:
        made[".txnindex"] = txns
    for kind, content in made.items():
        base.with_suffix(f"{kind}.cleaned").write_bytes(content)
    return [base.with_suffix(f"{kind}.cleaned") for kind in made]


def renaming(path: Path, old: str, new: str) -> Step:
    target = path.with_name(path.name.removesuffix(old) + new)
    return lambda: path.rename(target)


def replacement(
    folder: Path, *, is_compacted: bool, random: Random | None = None
) -> tuple[list[Step], int]:
    """Two segments for six, in the steps in which a broker does it; and how many it takes until there is
    no way back. ``random``: the old ones go in any order and at once, as when a broker starts."""
    old = sorted(folder.glob("*.log"))[1:7]
    first = write_replacement(old[:3], is_compacted=is_compacted)
    second = write_replacement(old[3:], is_compacted=is_compacted)
    steps: list[Step] = [renaming(path, ".cleaned", ".swap") for path in second + first]
    decided = len(steps)
    gone = [each for path in old for each in parts(path)]
    if random is None:
        steps += [renaming(path, "", ".deleted") for path in gone]
    else:
        random.shuffle(gone)
        steps += [path.unlink for path in gone]
    for path in first + second:
        swap = path.with_suffix(".swap")
        steps.append(renaming(swap, ".swap", ""))
    return steps, decided
