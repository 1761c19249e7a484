"""Random commits against a model: tasks, sizes, codecs, configs and keys as chance gives them.

Goal: whatever is staged, each record is in its partition once, in the order of tasks and rows, with its key,
time and headers; what is done is done; logs verify. Method: Hypothesis; a model of lists beside a directory
on a disk in memory, opened and closed at every commit.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.verify import verify_file
from stratalog.manager.commit_pieces import commit_pieces
from stratalog.manager.commits.commits import TopicPlan
from stratalog.manager.logs import open_logs
from stratalog.records.builder import BatchBuilder, BatchOptions, rows_of_records
from stratalog.records.layout import Codec
from stratalog.records.model import Record, RecordHeader
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece, PieceWriter
from stratalog.storage.log_config import LogConfig
from stratalog.testing import ManualClock, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.scale import SCALE, sized

ROOT = "/data"
PARTITIONS = 3
Seen = tuple[bytes | None, bytes | None, tuple[RecordHeader, ...]]


@st.composite
def records(draw: st.DrawFn) -> Record:
    headers = draw(
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=2)
    )
    return Record(
        draw(st.none() | st.binary(max_size=200)),
        draw(st.binary(max_size=5)),
        timestamp=1_700_000_000_000 - draw(st.integers(0, 10_000)),
        headers=tuple(RecordHeader(*each) for each in headers),
    )


tasks = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.lists(records(), min_size=1, max_size=12)),
    max_size=5,
)


@given(st.data())
@settings(max_examples=sized(15, 60 * SCALE), deadline=None)
def test_random_commits_are_what_a_model_says(data: st.DataObject) -> None:
    clock = ManualClock()
    disk = MemoryFileSystem(folders=[ROOT], clock=clock)
    configs = {
        "internal.segment.bytes": data.draw(st.sampled_from([600, 2000, 1 << 20])),
        "index.interval.bytes": 200,
        "max.message.bytes": 550,
        **data.draw(
            st.sampled_from(
                [
                    {},
                    {"compression.type": "lz4"},
                    {"message.timestamp.type": "LogAppendTime"},
                    {"cleanup.policy": "compact"},
                ]
            )
        ),
    }
    config = LogConfig.of(configs)
    model: dict[int, list[Seen]] = {number: [] for number in range(PARTITIONS)}
    version = 0
    for _ in range(data.draw(st.integers(1, 5))):
        version += data.draw(st.integers(0, 2))
        key = CommitKey("query", version)
        is_new = version > 0 and not is_done(disk, key)
        pieces: list[Piece] = []
        for task, rows in enumerate(data.draw(st.lists(tasks, max_size=3))):
            options = BatchOptions(
                codec=data.draw(st.sampled_from(list(Codec))),
                batch_bytes=data.draw(st.sampled_from([1, 100, 300])),
            )
            pieces += staged(disk, key, task, rows, options, config)
            if is_new:
                for number, listed in by_partition(rows).items():
                    model[number] += [(r.value, r.key, r.headers) for r in listed]
        if version == 0:
            continue
        clock.advance(data.draw(st.integers(0, 3)))
        result = commit_pieces(
            ROOT, key, pieces, topics={"t": TopicPlan(PARTITIONS, configs)},
            file_system=disk, clock=disk.clock, lock_timeout_s=0,
        )  # fmt: skip
        assert result.was_done_before != is_new
        if is_new:
            assert result.records == sum(piece.records for piece in pieces)
            for span in result.spans or ():
                assert span.last_offset == len(model[span.topic_partition.partition]) - 1
    if version:
        check(disk, model)


def is_done(disk: MemoryFileSystem, key: CommitKey) -> bool:
    return read_journal(disk, ROOT).is_done(key)


def by_partition(rows: list[tuple[int, list[Record]]]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for number, listed in rows:
        found.setdefault(number, []).extend(listed)
    return found


attempts = iter(range(1 << 40))


def staged(
    disk: MemoryFileSystem,
    key: CommitKey,
    task: int,
    rows: list[tuple[int, list[Record]]],
    options: BatchOptions,
    config: LogConfig,
) -> tuple[Piece, ...]:
    writer = PieceWriter(disk, ROOT, key, task=task, attempt=next(attempts), configs={"t": config})
    for number, listed in rows:
        builder = BatchBuilder(options)
        builder.append(rows_of_records(listed))
        writer.append(TopicPartition("t", number), builder.out)
    pieces = writer.finish()
    assert all(piece.size_bytes <= config.effective_segment_bytes for piece in pieces)
    assert sum(piece.records for piece in pieces) == sum(len(listed) for _, listed in rows)
    return pieces


def check(disk: MemoryFileSystem, model: dict[int, list[Seen]]) -> None:
    with open_logs(ROOT, read_only=True, file_system=disk, clock=disk.clock) as logs:
        for number, wanted in model.items():
            found = list(logs.read("t", number).records())
            assert [(r.value, r.key, r.headers) for r in found] == wanted
            assert [r.offset for r in found] == list(range(len(wanted)))
    for source in find_sources(ROOT, file_system=disk).partitions:
        for path in source.segments:
            assert verify_file(path, file_system=disk).findings == ()
    assert not [e.name for e in disk.list_dir(ROOT) if e.name.startswith("stratalog-piece")]
