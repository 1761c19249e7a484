"""Pieces for tests, and what is in a log directory afterwards: a few lines each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stratalog.clock import Clock
from stratalog.inspect.scan import scan
from stratalog.manager.commit_pieces import commit_pieces
from stratalog.manager.commits.commits import CommitResult, TopicPlan
from stratalog.records.builder import BatchBuilder, BatchOptions, rows_of_records
from stratalog.records.model import Record
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece, PieceWriter
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.types import TopicPartition

Values = Mapping[tuple[str, int], Sequence[str]]


def batches(
    values: Sequence[str],
    *,
    now_ms: int,
    batch_bytes: int = 64,
    options: BatchOptions | None = None,
) -> bytearray:
    """Values as finished batches; the key of each is its value."""
    builder = BatchBuilder(options or BatchOptions(batch_bytes=batch_bytes))
    records = [Record(v.encode(), v.encode(), timestamp=now_ms) for v in values]
    builder.append(rows_of_records(records))
    return builder.out


def stage(
    file_system: FileSystem,
    root: str,
    key: CommitKey,
    values: Values,
    *,
    clock: Clock,
    task: int = 0,
    attempt: int = 0,
    configs: Mapping[str, LogConfig] | None = None,
    batch_bytes: int = 64,
    options: BatchOptions | None = None,
) -> tuple[Piece, ...]:
    """What one task stages."""
    writer = PieceWriter(file_system, root, key, task=task, attempt=attempt, configs=configs or {})
    for place, listed in values.items():
        data = batches(listed, now_ms=clock.now_ms(), batch_bytes=batch_bytes, options=options)
        writer.append(TopicPartition(*place), data)
    return writer.finish()


class Committing:
    """A log directory on some file system, that is committed to."""

    def __init__(self, file_system: FileSystem, root: str, clock: Clock) -> None:
        self.file_system = file_system
        self.root = root
        self.clock = clock
        self.lock_timeout_s = 0.0
        self.threads = 1

    def stage(self, key: CommitKey, values: Values, **names: object) -> tuple[Piece, ...]:
        return stage(self.file_system, self.root, key, values, clock=self.clock, **names)  # type: ignore[arg-type]

    def commit(
        self,
        key: CommitKey,
        pieces: Sequence[Piece],
        topics: Mapping[str, TopicPlan] | None = None,
    ) -> CommitResult:
        return commit_pieces(
            self.root,
            key,
            pieces,
            topics=topics,
            file_system=self.file_system,
            clock=self.clock,
            lock_timeout_s=self.lock_timeout_s,
            threads=self.threads,
        )

    def put(
        self,
        key: CommitKey,
        values: Values,
        topics: Mapping[str, TopicPlan] | None = None,
        **names: object,
    ) -> CommitResult:
        """Stage and commit."""
        return self.commit(key, self.stage(key, values, **names), topics)

    def seen(self) -> dict[tuple[str, int], list[str]]:
        """What our readers see, by partition."""
        found: dict[tuple[str, int], list[str]] = {}
        rows = scan(
            self.root,
            columns=["topic", "partition", "offset", "value"],
            file_system=self.file_system,
        )
        for batch in rows:
            for row in batch.to_pylist():
                place = (row["topic"], row["partition"])
                found.setdefault(place, []).append(row["value"].decode())
        return found

    def names(self) -> set[str]:
        return {entry.name for entry in self.file_system.list_dir(self.root)}
