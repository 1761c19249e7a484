"""No command changes a byte, a name or a time of what it reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.judges.peers.golden import golden_set


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["v2-torn", "v2-preallocated", "mixed", "v07-gzip", "v2-unclean"])
def test_every_verb_leaves_the_folder_as_it_was(tmp_path, name):
    copy = tmp_path / name
    shutil.copytree(golden_set(name).path, copy)
    before = state(copy)
    files = sorted([*copy.rglob("*.log"), *copy.rglob("*.kafka")])
    for verb in (["cat"], ["cat", "--control"], ["count"], ["verify"], ["verify", "--deep"]):
        for output in ("table", "ndjson", "json", "csv", "parquet", "arrow"):
            run(*verb, "-o", output, *files)
    assert state(copy) == before


@pytest.mark.parametrize(
    "name", ["v2-torn", "v2-preallocated", "mixed", "v07-gzip", "v2-unclean", "v2-delete-records"]
)
def test_every_verb_leaves_a_log_directory_as_it_was(tmp_path, name):
    copy = tmp_path / name
    shutil.copytree(golden_set(name).path, copy)
    (copy / "unknown").mkdir()
    (copy / "a-0" / "link").parent.mkdir()
    (copy / "a-0" / "link").symlink_to(copy)
    before = state(copy), sorted(copy.rglob("*")), copy.stat().st_mtime_ns
    for verb in (
        ["cat"], ["cat", "--offsets", "-5"], ["cat", "--offsets", "@2024-03-13T04:28:00Z"],
        ["count"], ["count", "--offsets", "+5:-5"], ["verify"], ["ls"], ["ls", "--by", "segment"],
        ["ls", "--no-records"], ["salvage"],
    ):  # fmt: skip
        run(*verb, copy)
    assert (state(copy), sorted(copy.rglob("*")), copy.stat().st_mtime_ns) == before
