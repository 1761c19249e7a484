"""What a verb does not use, it does not import; and it is there at once."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.cli.runner import ROOT, command
from tests.judges.peers.golden import golden_set

SEGMENT = str(golden_set("v2-plain").partitions()[0].segments[0].relative_to(ROOT))
FOLDER = str(golden_set("v2-multi-dir").log_dirs[0].relative_to(ROOT))
CLEAN = str(golden_set("v2-gzip").log_dirs[0].relative_to(ROOT))
HEAVY = ["cramjam", "numpy", "pandas", "pyarrow", "rich"]

#: Modules that only damage needs, Stratalog's own files, or an index to rebuild.
RARE = [
    "stratalog.inspect.file.misplaced",
    "stratalog.inspect.partition.excess_end",
    "stratalog.storage.commits.journal",
    "stratalog.storage.formats.topic_entries",
    "stratalog.storage.segment.next_intact",
    "stratalog.storage.segment.tail_verdict",
    "stratalog.storage.segment.torn_tail",
]
PROGRAM = """
import sys
sys.argv = {arguments!r}
from stratalog.cli.main import main
try:
    main()
finally:
    print(*sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""


def brought_in(*arguments: str, heavy: list[str] = HEAVY) -> list[str]:
    program = PROGRAM.format(arguments=["stratalog", *arguments], heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT, timeout=60
    )
    return done.stderr.decode().splitlines()[-1].split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["count", SEGMENT],
        ["count", "-o", "table", SEGMENT],
        ["verify", "--deep", SEGMENT],
        ["ls", FOLDER],
        ["count", "--offsets", "-5", FOLDER],
        ["cat", "--offsets", "@-1h", FOLDER],
        *(["cat", "-o", output, SEGMENT] for output in ("ndjson", "json", "csv", "table")),
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(arguments):
    assert brought_in(*arguments) == []


@pytest.mark.parametrize("verb", ["cat", "count", "ls", "verify"])
def test_a_directory_after_a_clean_shutdown_needs_nothing_rare(verb):
    assert brought_in(verb, CLEAN, heavy=RARE) == []


@pytest.mark.parametrize("verb", ["count", "ls"])
def test_counting_makes_no_record(verb):
    assert brought_in(verb, CLEAN, heavy=["stratalog.records.model"]) == []


def test_arrow_is_imported_where_it_is_used():
    assert "pyarrow" in brought_in("cat", "-o", "arrow", SEGMENT)


@pytest.mark.parametrize(
    "arguments", [["--version"], ["count", SEGMENT], ["cat", SEGMENT], ["ls", FOLDER]]
)
def test_start_is_quick(arguments):
    """The bar is 150 ms on a quiet machine. What is measured is the processor's time, and the best of
    several: a machine that is busy with something else is no bug."""
    best = 9.0
    for _ in range(3):
        start = used_by_children()
        subprocess.run(command(*arguments), stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
        best = min(best, used_by_children() - start)
    assert best < 0.5


def used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
