"""A log directory that is committed to while the power may be cut: what is done to it, and what must hold.

Every value is written once in all: it names its commit, its partition and its place there. So what is read
tells which commits it is of, whether all of each, and whether in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from stratalog.clock import Clock
from stratalog.errors import StorageError
from stratalog.inspect.scan import scan
from stratalog.manager.commit_pieces import commit_pieces
from stratalog.manager.commits.commits import CommitResult, TopicPlan
from stratalog.manager.logs import open_logs
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.spark.options.write_options import WriteOptions
from stratalog.spark.write.plan import plan_sink
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import parse_piece_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Facts, MemoryFileSystem
from tests.manager.staging import stage

ROOT = "/data"
OWNER = "query"

Place = tuple[str, int]

#: Segments of a few batches, so that pieces of two fill half of one.
CONFIGS: dict[str, object] = {
    "internal.segment.bytes": 400,
    "segment.index.bytes": 120,
    "index.interval.bytes": 100,
    "file.delete.delay.ms": 0,
}


class Begun(NamedTuple):
    """A commit was begun: how many values each of its tasks has for each partition."""

    version: int
    sizes: tuple[tuple[tuple[Place, int], ...], ...]
    topics: tuple[tuple[str, int], ...] = ()

    def values(self, task: int) -> dict[Place, list[str]]:
        return {
            place: [
                f"c{self.version}.{place[0]}{place[1]}.{task}.{number}" for number in range(count)
            ]
            for place, count in self.sizes[task]
        }

    def expected(self) -> dict[Place, list[str]]:
        """What must be in each partition, in the order of the tasks."""
        found: dict[Place, list[str]] = {}
        for task in range(len(self.sizes)):
            for place, values in self.values(task).items():
                found.setdefault(place, []).extend(values)
        return found


class Finished(NamedTuple):
    """A commit has been acknowledged, or was seen by who has finished the recovery."""

    version: int


class Foreign(NamedTuple):
    """Somebody else's record; whether it was acknowledged."""

    place: Place
    value: str
    is_sure: bool


Fact = Begun | Finished | Foreign


class Sink(Protocol):
    def note(self, fact: Fact) -> None: ...
    def __iter__(self) -> Iterator[Fact]: ...


class World:
    """A log directory in the hands of a scenario."""

    def __init__(
        self,
        file_system: FileSystem,
        facts: Sink,
        clock: Clock,
        configs: Mapping[str, object] | None = None,
        *,
        batch_bytes: int = 30,
        batch_options: BatchOptions | None = None,
        threads: int = 1,
    ) -> None:
        self.file_system = file_system
        self.facts = facts
        self.clock = clock
        self.configs = dict(CONFIGS if configs is None else configs)
        self.batch_bytes = batch_bytes
        self.batch_options = batch_options
        self.threads = threads

    # What is done.

    def commit(
        self,
        version: int,
        *tasks: Mapping[Place, int],
        topics: Mapping[str, int] | None = None,
    ) -> CommitResult:
        """Stage what each task has, and commit it; ``tasks`` say how many values go where."""
        begun = Begun(
            version,
            tuple(tuple(sorted(each.items())) for each in tasks),
            tuple(sorted((topics or {}).items())),
        )
        self.facts.note(begun)
        return self.redo(begun)

    def redo(self, begun: Begun) -> CommitResult:
        """Stage and commit; another time, by attempts that nobody has made before."""
        names = (parse_piece_name(entry.name) for entry in self.file_system.list_dir(ROOT))
        attempt = 1 + max((name.attempt for name in names if name is not None), default=0)
        key = CommitKey(OWNER, begun.version)
        configs = dict.fromkeys(("t", "u"), LogConfig.of(self.configs))
        pieces: list[Piece] = []
        for task in range(len(begun.sizes)):
            pieces += stage(
                self.file_system, ROOT, key, begun.values(task), clock=self.clock, task=task,
                attempt=attempt, configs=configs, batch_bytes=self.batch_bytes,
                options=self.batch_options,
            )  # fmt: skip
        result = commit_pieces(
            ROOT,
            key,
            pieces,
            topics={name: TopicPlan(count, self.configs) for name, count in begun.topics},
            file_system=self.file_system,
            clock=self.clock,
            lock_timeout_s=0,
            threads=self.threads,
        )
        self.facts.note(Finished(begun.version))
        return result

    def append(self, place: Place, value: str) -> None:
        """A record of a writer that opens the directory as everybody does."""
        self.facts.note(Foreign(place, value, is_sure=False))
        with open_logs(ROOT, file_system=self.file_system, clock=self.clock) as logs:
            logs.append(place[0], [value], partition=place[1])
        self.facts.note(Foreign(place, value, is_sure=True))

    def append_beside(self, place: Place, value: str) -> None:
        """A record of one who knows nothing of our journal, as Kafka: it recovers the log, and appends."""
        folder = f"{ROOT}/{place[0]}-{place[1]}"
        try:
            self.file_system.list_dir(folder)
        except StorageError:
            return
        # What a killed process made may be seen and not be on the disk. Kafka does not look after that, and
        # what it writes into such a folder goes with it: no promise of ours.
        self.file_system.sync_dir(ROOT)
        self.facts.note(Foreign(place, value, is_sure=False))
        log = PartitionLog.open(
            folder, LogConfig.of(self.configs), file_system=self.file_system, clock=self.clock
        )
        record = Record(value.encode(), value.encode(), timestamp=self.clock.now_ms())
        epoch = log.epochs[-1].epoch if log.epochs else 0
        log.append(build_batch([record]), leader_epoch=epoch, sync=True)
        log.abandon()
        self.file_system.unlink(f"{ROOT}/.kafka_cleanshutdown")
        self.facts.note(Foreign(place, value, is_sure=True))

    # What is seen.

    def scanned(self) -> dict[Place, list[str]]:
        """By who reads the files."""
        found: dict[Place, list[str]] = {}
        for batch in scan(
            ROOT, columns=("topic", "partition", "value"), file_system=self.file_system
        ):
            topics = batch.column(0).to_pylist()
            partitions = batch.column(1).to_pylist()
            values = batch.column(2).to_pylist()
            for topic, partition, value in zip(topics, partitions, values, strict=True):
                found.setdefault((topic, partition), []).append(value.decode())
        return found

    def read(self) -> dict[Place, list[str]]:
        """By who opens the directory to read it."""
        found: dict[Place, list[str]] = {}
        with open_logs(
            ROOT, read_only=True, file_system=self.file_system, clock=self.clock
        ) as logs:
            for topic in logs.topics():
                for record in logs.read(topic).records():
                    place = (record.topic, record.partition)
                    found.setdefault(place, []).append((record.value or b"").decode())
        return found

    def is_there(self) -> bool:
        try:
            names = {entry.name for entry in self.file_system.list_dir(ROOT)}
        except StorageError:
            return False
        return "meta.properties" in names

    def check(self, seen: Mapping[Place, Sequence[str]], *, is_settled: bool) -> set[int]:
        """Every commit is there as a whole or not at all, everything once and in order. ``is_settled``: no
        commit is under way, so that what others wrote is seen, too. The versions that are there."""
        begun: dict[int, Begun] = {}
        finished: set[int] = set()
        foreign: dict[tuple[Place, str], bool] = {}
        for fact in self.facts:
            match fact:
                case Begun():
                    begun[fact.version] = fact
                case Finished():
                    finished.add(fact.version)
                case Foreign():
                    key = (fact.place, fact.value)
                    foreign[key] = foreign.get(key, False) or fact.is_sure
        counts = Counter((place, value) for place, listed in seen.items() for value in listed)
        twice = [each for each, count in counts.items() if count > 1]
        assert not twice, f"there more than once: {twice}"
        known = set(foreign)
        there = set()
        for version, commit in begun.items():
            wanted = {
                (place, value) for place, listed in commit.expected().items() for value in listed
            }
            known |= wanted
            found = wanted & counts.keys()
            assert not found or found == wanted, (
                f"of commit {version} only {len(found)} of {len(wanted)} records are seen"
            )
            assert version not in finished or found or not wanted, f"commit {version} is lost"
            if found or (not wanted and version in finished):
                there.add(version)
                for place, listed in commit.expected().items():
                    order = [value for value in seen.get(place, ()) if value in set(listed)]
                    assert order == listed, f"commit {version} is out of order in {place}"
        assert counts.keys() <= known, f"nobody wrote {sorted(counts.keys() - known)}"
        if is_settled:
            lost = [key for key, is_sure in foreign.items() if is_sure and key not in counts]
            assert not lost, f"what others wrote is lost: {lost}"
        return there

    def look(self) -> None:
        """What readers see before anybody has recovered anything."""
        if self.is_there():
            is_settled = not read_journal(self.file_system, ROOT).open
            for seen in (self.scanned(), self.read()):
                self.check(seen, is_settled=is_settled)
            self.check_plan()

    def check_plan(self) -> None:
        """Who commits again plans before anybody recovers, with the options of the first time."""
        made = {
            topic: count
            for fact in self.facts
            if isinstance(fact, Begun)
            for topic, count in fact.topics
        }
        for topic, count in made.items():
            given = {"path": ROOT, "topic": topic, "partitions": str(count)}
            plan = plan_sink(WriteOptions.of(given), self.file_system)
            assert plan.counts.get(topic, count) == count


class Recovery:
    """Look, recover, look again, and try again whatever was not acknowledged."""

    def __init__(
        self,
        configs: Mapping[str, object] | None = None,
        *,
        foreign_at: Sequence[Place] = (),
        batch_options: BatchOptions | None = None,
    ) -> None:
        self.configs = configs
        self.foreign_at = foreign_at
        self.batch_options = batch_options

    def __call__(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        world = World(
            file_system, facts, file_system.clock, self.configs, batch_options=self.batch_options
        )
        world.look()
        if self.foreign_at and world.is_there():
            for place in self.foreign_at:
                world.append_beside(place, f"foreign.{len(facts)}")
            world.look()
        with open_logs(ROOT, file_system=file_system, clock=file_system.clock) as logs:
            for place in ("t", 0), ("t", 1), ("u", 0):
                if place in logs._catalogue.directory_of:
                    logs.partition(*place)
        there = world.check(world.scanned(), is_settled=True)
        assert not read_journal(file_system, ROOT).open
        begun = {fact.version: fact for fact in facts if isinstance(fact, Begun)}
        for version in there:
            facts.note(Finished(version))
        # Spark tries again what it was not told of, in order; and what it was, should it have forgotten.
        for version in sorted(begun)[-2:]:
            result = world.redo(begun[version])
            if begun[version].expected():  # of one without records nobody can tell by reading
                assert result.was_done_before == (version in there)
        there = world.check(world.read(), is_settled=True)
        assert there == begun.keys()
        check_leftovers(file_system)


def check_leftovers(file_system: FileSystem) -> None:
    """Nothing is left of what was staged."""
    names = {entry.name for entry in file_system.list_dir(ROOT)}
    left = [name for name in names if name.startswith("stratalog-piece")]
    assert not left, f"left behind: {left}"


def new_disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[ROOT])
