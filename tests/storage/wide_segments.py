"""Segments that are wider than an index can say."""

from __future__ import annotations

from pathlib import Path

from tests.storage.logs import name, small

FAR = 1 << 31
#: Two that fit, the last of them just so, and three that do not.
WIDE = (0, FAR - 1, FAR, FAR + 5, 2 * FAR + 5)


def wide(folder: Path, *at: int, base: int = 0, has_index: bool = False) -> Path:
    """A segment with batches at these offsets; an index, where it has one, says nothing of them."""
    folder.mkdir(exist_ok=True)
    (folder / name(base, ".log")).write_bytes(b"".join(map(small, at or WIDE)))
    if has_index:
        (folder / name(base, ".index")).write_bytes(b"")
        (folder / name(base, ".timeindex")).write_bytes(b"")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder without the one that opening it makes."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name != "leader-epoch-checkpoint"
    }
