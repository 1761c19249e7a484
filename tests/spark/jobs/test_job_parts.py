"""Parts of files put together again say what one walk over the file says, whatever is wrong with the file.

Goal: tasks that share a segment change no answer. Method: logs with generated damage are cut at places that
an index might name, right or wrong; what comes of the parts is compared with the plain answer. No Spark.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog
from stratalog.inspect.file.count import count_file
from stratalog.inspect.file.span import segment_spans
from stratalog.inspect.verify import verify_file
from stratalog.records.layout import BASE_TIMESTAMP_AT, OFFSET_AT, SIZE_AT
from stratalog.spark.jobs.counting.batch_stats import BatchStats
from stratalog.spark.jobs.counting.tasks import (
    CountedPart,
    Counting,
    PartToCount,
    count_part,
    merge_parts,
)
from stratalog.spark.jobs.run.file_parts import FilePart, cut_file, pack
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.part_tasks import FailedPart, work_on_parts
from stratalog.spark.jobs.verifying.tasks import (
    PartToVerify,
    VerifiedPart,
    Verifying,
    merge_reports,
    verify_part,
)
from stratalog.storage.files.filesystem import OsFileSystem
from tests.scale import SCALE, sized
from tests.storage.wide_segments import WIDE, wide

BATCHES = 12


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """The bytes of a segment, and where its batches begin."""
    root = tmp_path_factory.mktemp("parts")
    starts = []
    with stratalog.open(str(root / "logs")) as logs:
        logs.create("t", 1)
        path = root / "logs" / "t-0" / "00000000000000000000.log"
        for number in range(BATCHES):
            starts.append(path.stat().st_size if path.exists() else 0)
            codec = ("none", "zstd", "lz4")[number % 3]
            logs.append("t", [f"value {number} {n}" for n in range(1 + number % 4)], codec=codec)
        logs.flush()
    return path.read_bytes(), starts


def parts_of(path: str, edges: list[int]) -> list[FilePart]:
    return [
        FilePart(path, start, end, (end or start) - start)
        for start, end in pairwise([0, *edges, None])
        if start is not None
    ]


damages = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 10_000)),
        st.tuples(st.just("offset"), st.integers(0, BATCHES - 1)),
        st.tuples(st.just("size"), st.integers(0, BATCHES - 1)),
        st.tuples(st.just("body"), st.integers(0, BATCHES - 1)),
        st.tuples(st.just("cut"), st.integers(0, 10_000)),
    ),
    max_size=3,
)


def damaged(sound: tuple[bytes, list[int]], what: list[tuple[str, int]]) -> bytes:
    whole, starts = sound
    data = bytearray(whole)
    for kind, number in what:
        if kind == "cut":
            del data[number % len(whole) :]
            continue
        place = {
            "flip": number % len(whole),
            "offset": starts[number % BATCHES] + OFFSET_AT + 7,
            "size": starts[number % BATCHES] + SIZE_AT + 3,
            "body": starts[number % BATCHES] + BASE_TIMESTAMP_AT,
        }[kind]
        if place < len(data):
            data[place] ^= 1 << number % 8
    return bytes(data)


@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
@given(data=st.data(), what=damages)
def test_parts_say_what_the_whole_says(sound, tmp_path_factory, data, what):
    folder = tmp_path_factory.mktemp("damaged") / "t-0"
    folder.mkdir()
    path = str(folder / "00000000000000000000.log")
    content = damaged(sound, what)
    Path(path).write_bytes(content)
    known = [start for start in sound[1] if 0 < start < len(content)]
    anywhere = st.integers(1, max(1, len(content) - 1))
    edges = sorted(
        data.draw(
            st.sets(st.one_of(st.sampled_from(known), anywhere) if known else anywhere, max_size=4)
        )
    )
    parts = parts_of(path, edges)
    logs = LogPaths((str(folder),))

    expected = data.draw(st.sampled_from([-1, 0, 3]))
    deep = data.draw(st.booleans())
    plain = verify_file(path, expected_offset=expected, deep=deep)
    verified = work_on_parts(
        verify_part,
        Verifying(logs, deep=deep),
        [PartToVerify(0, part, is_last_segment=True) for part in parts],
    )
    merged = merge_reports(verified, expected, 1000)  # type: ignore[arg-type]
    assert merged is None or merged == plain

    counted = work_on_parts(
        count_part, Counting(logs, times=True, stats=True), [PartToCount(0, part) for part in parts]
    )
    count = merge_parts(counted)  # type: ignore[arg-type]
    assert count is None or count == count_file(path, times=True)
    if not what and set(edges) <= set(known):
        # Nothing is wrong: then nothing is read twice.
        assert merged is not None or expected > 0
        assert count is not None
        noted = BatchStats.sum(each.stats for each in counted if isinstance(each, CountedPart))
        assert noted.codecs.total() == BATCHES


def test_a_file_is_cut_at_batches_of_its_index(tmp_path):
    with stratalog.open(str(tmp_path / "logs")) as logs:
        logs.create("t", 1, {"index.interval.bytes": 1000})
        for number in range(400):
            logs.append("t", [f"{number}" * 50], sync=False)
    path = tmp_path / "logs" / "t-0" / "00000000000000000000.log"
    (span,) = segment_spans([str(path)])
    size = path.stat().st_size
    parts = cut_file(span, OsFileSystem(), size // 5 + 1)
    assert 4 <= len(parts) <= 6
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert sum(part.size_bytes for part in parts) == size
    counted = work_on_parts(
        count_part, Counting(LogPaths((str(tmp_path),))), [PartToCount(0, part) for part in parts]
    )
    merged = merge_parts(counted)  # type: ignore[arg-type]
    assert merged is not None
    assert merged.records == 400
    path.with_suffix(".index").unlink()
    assert len(cut_file(span, OsFileSystem(), size // 5 + 1)) == 1
    assert len(cut_file(span, OsFileSystem(), size // 5 + 1, without_index=True)) > 1


@given(st.lists(st.integers(0, 1 << 28), max_size=200), st.integers(1 << 24, 1 << 29))
def test_packing_keeps_order_and_makes_no_task_too_large(sizes, limit):
    tasks = pack(sizes, lambda size: size, limit)
    assert [size for task in tasks for size in task] == sizes
    assert all(tasks)
    for task in tasks:
        assert sum(task) <= 1.5 * limit + max(task)


@pytest.mark.parametrize("base", [0, 7])
def test_parts_of_a_segment_too_wide_for_an_index_are_not_put_together(
    tmp_path: Path, base: int
) -> None:
    """No part knows that; one walk over the file notes it."""
    folder = wide(tmp_path / "t-0", *(base + offset for offset in WIDE), base=base)
    (path,) = map(str, folder.glob("*.log"))
    size = Path(path).stat().st_size
    parts = parts_of(path, [size // len(WIDE)])
    given_parts = [PartToVerify(0, part, is_last_segment=True) for part in parts]
    verifying = Verifying(LogPaths((str(tmp_path),)))
    found = [
        each
        for each in work_on_parts(verify_part, verifying, given_parts)
        if isinstance(each, VerifiedPart)
    ]
    assert len(found) == 2
    assert merge_reports(found, -1, 1000) is None
    (whole,) = work_on_parts(
        verify_part, verifying, [PartToVerify(0, parts_of(path, [])[0], is_last_segment=True)]
    )
    assert isinstance(whole, VerifiedPart)
    assert merge_reports([whole], -1, 1000) == verify_file(path)
    assert [finding.reason for finding in whole.report.findings] == ["offset_range"]


def test_a_file_that_cannot_be_read_is_reported_by_its_number_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    folder = wide(tmp_path / "t-0", 0, 1)
    (path,) = map(str, folder.glob("*.log"))
    size = Path(path).stat().st_size
    counting = Counting(LogPaths((str(tmp_path),)))
    parts = [
        PartToCount(number, FilePart(name, 0, None, size))
        for number, name in enumerate((path, str(folder / "none.log"), path))
    ]
    first, failed, last = work_on_parts(count_part, counting, parts)
    assert isinstance(failed, FailedPart)
    assert (failed.number, failed.error.path) == (1, str(folder / "none.log"))  # type: ignore[attr-defined]
    assert [each.number for each in (first, last)] == [0, 2]
    assert isinstance(first, CountedPart)
    assert first.count.records == 2
