"""A partition folder that we wrote is Kafka's: real Kafka 4.3 takes it over and has nothing to say about it.

Folders of several kinds (every codec, idempotent and transactional producers, commits, aborts and an open
transaction, rolled segments, a cut tail, leader epochs, a moved start) are adopted twice: in mode ``recover``
Kafka checks every CRC and makes every index anew, in mode ``trust`` it uses ours. Either way no byte of a log
changes, no index differs, nothing is warned of, and a real client reads what we read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.clock import SYSTEM_CLOCK
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.storage.formats.checkpoints import encode_offsets
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition
from tests.judges.interop.real_client import Place, consume
from tests.judges.kafka.oracle import Adoption
from tests.judges.peers.dump_log import parse_dump
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.storage.logs import again, bases, batch, end_txn, in_txn, name, open_log, records, sent

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

CONFIGS = {"internal.segment.bytes": 8192, "index.interval.bytes": 512, "segment.index.bytes": 4096}
#: Now: what is a day old has expired, and Kafka forgets such producers when it loads.
NOW = int(time.time() * 1000) - 60_000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


# --- folders -------------------------------------------------------------------------------------


def some_records(rng: random.Random, now: int, count: int) -> list[Record]:
    return [
        Record(
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(300)), b"same " * 60)),
            key=rng.choice((None, b"", b"key %d" % rng.randrange(9))),
            timestamp=now + rng.randrange(-40, 40),
            headers=(RecordHeader("日本", None), RecordHeader("h", b"x"))
            if rng.random() < 0.3
            else (),
        )
        for _ in range(count)
    ]


def write_codecs(log: PartitionLog) -> None:
    """Every codec, batches of one and of many; messages of the old formats are converted."""
    rng = random.Random(1)
    for at in range(120):
        rows = some_records(rng, NOW + 20 * at, rng.choice((1, 1, 4, 20)))
        log.append(build_batch(rows, BatchOptions(codec=Codec(at % 5))))
        if at % 17 == 0:
            old = [Record(row.value, row.key, row.timestamp) for row in rows]
            options = MessageOptions(magic=at % 2, codec=Codec(at % 4))
            log.append(build_messages(old, options))


def write_idempotent(log: PartitionLog) -> None:
    sequences = dict.fromkeys((1000, 1001, 1002), 0)
    rng = random.Random(2)
    for at in range(150):
        producer = rng.choice(list(sequences))
        values = [rng.randbytes(rng.randrange(120)) for _ in range(rng.randrange(1, 4))]
        data = sent(producer, sequences[producer], *values, timestamp=NOW + at, producer_epoch=2)
        sequences[producer] += len(values)
        log.append(data)
        if at % 10 == 0:
            assert log.append(data).is_duplicate
        if at % 7 == 0:
            log.append(batch(b"from nobody", timestamp=NOW + at))


def write_transactions(log: PartitionLog, *, leave_open: bool = False) -> None:
    rng = random.Random(3)
    producers = (2000, 2001, 2002)
    sequences = dict.fromkeys(producers, 0)
    is_open = dict.fromkeys(producers, False)
    for at in range(200):
        producer = rng.choice(producers)
        if is_open[producer] and rng.random() < 0.3:
            end_txn(log, rng.choice((ABORT, COMMIT)), producer, timestamp=NOW + at)
            is_open[producer] = False
        elif rng.random() < 0.2:
            log.append(batch(b"outside", timestamp=NOW + at))
        else:
            values = [rng.randbytes(rng.randrange(150)) for _ in range(rng.randrange(1, 3))]
            log.append(in_txn(producer, sequences[producer], *values, timestamp=NOW + at))
            sequences[producer] += len(values)
            is_open[producer] = True
    for producer in producers:
        if is_open[producer] and not leave_open:
            end_txn(log, ABORT, producer, timestamp=NOW + 200)
    end_txn(log, ABORT, 2005, timestamp=NOW + 200)  # it held nothing


def write_epochs(log: PartitionLog) -> None:
    """Written under several leaders, cut and written on."""
    for epoch in (0, 1, 2):
        for at in range(60):
            log.append(
                batch(b"epoch %d, %d " % (epoch, at) * 5, timestamp=NOW + at), leader_epoch=epoch
            )
        log.truncate(log.log_end - 7)
    assert [entry.epoch for entry in log.epochs] == [0, 1, 2]


def write_cut(log: PartitionLog) -> None:
    """Cut and written on, and the indexes as that leaves them: right, and not what a rebuild gives."""
    for _ in range(4):
        for at in range(50):
            log.append(batch(b"%d " % at * 20, timestamp=NOW + at))
        log.truncate(log.log_end - 13)


def write_append_time(log: PartitionLog) -> None:
    for at in range(60):
        log.append(batch(b"v" * 100, b"w" * 100, timestamp=[5, at], codec=Codec(at % 5)))


def write_moved_start(log: PartitionLog) -> None:
    for at in range(100):
        log.append(batch(b"v" * 100, b"w" * 100, timestamp=NOW + at))
    log.advance_start(117)
    log.retain()
    log.remove_due(all_of_them=True)


@dataclass(frozen=True)
class Written:
    """A folder of ours, and what must be read from it."""

    folder: Path
    start: int
    end: int
    segments: int
    seen: list[Record]
    committed: list[Record]


Write = Callable[[PartitionLog], None]
TOPICS: dict[str, tuple[Write, dict[str, object]]] = {
    "codecs": (write_codecs, {}),
    "recompressed": (write_codecs, {"compression.type": "zstd"}),
    "idempotent": (write_idempotent, {}),
    "transactions": (write_transactions, {}),
    "open-transaction": (lambda log: write_transactions(log, leave_open=True), {}),
    "epochs": (write_epochs, {}),
    "cut": (write_cut, {}),
    "append-time": (write_append_time, {"message.timestamp.type": "LogAppendTime"}),
    "moved-start": (write_moved_start, {}),
}


def write(root: Path, topic: str) -> Written:
    fill, configs = TOPICS[topic]
    folder = root / f"{topic}-0"
    log = open_log(folder, {**CONFIGS, **configs}, clock=SYSTEM_CLOCK, watermark=Watermark.WRITTEN)
    fill(log)
    if topic == "epochs":
        # What a cut leaves in memory of the index is not a function of the log: recovery makes it one.
        log.abandon()
        log = again(log, watermark=Watermark.WRITTEN)
    written = Written(
        folder,
        log.log_start,
        log.log_end,
        len(bases(log)),
        records(log, None, Isolation.UNCOMMITTED),
        records(log, None, Isolation.COMMITTED),
    )
    log.close()
    return written


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[Place, Written]:
    root = tmp_path_factory.mktemp("ours")
    made = {(topic, 0): write(root, topic) for topic in TOPICS}
    starts = {TopicPartition(*place): each.start for place, each in made.items() if each.start}
    (root / "log-start-offset-checkpoint").write_bytes(encode_offsets(starts))
    return made


def test_what_is_written_here_is_worth_adopting(written: dict[Place, Written]) -> None:
    by_topic = {topic: each for (topic, _), each in written.items()}
    assert all(each.segments >= 2 for each in written.values())
    for topic in ("transactions", "open-transaction"):
        assert 0 < len(by_topic[topic].committed) < len(by_topic[topic].seen)
        assert list(by_topic[topic].folder.glob("*.txnindex"))
    assert by_topic["moved-start"].start == 117
    assert {path.suffix for each in written.values() for path in each.folder.iterdir()} == {
        ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "",
    }  # fmt: skip


# --- Kafka ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["recover", "trust"])
def adopted(
    request: pytest.FixtureRequest,
    kafka_oracle: KafkaOracle,
    written: dict[Place, Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Adoption]:
    broker = kafka_oracle.broker(
        tmp_path_factory.mktemp("kafka") / "broker",
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1},
    )
    try:
        folders = [each.folder for each in written.values()]
        yield broker.adopt(*folders, mode=request.param, topic_config=CONFIGS)
    finally:
        broker.kill()


def test_kafka_takes_it_over_without_a_word(
    adopted: Adoption, written: dict[Place, Written]
) -> None:
    assert adopted.warnings == []
    assert adopted.intact
    for partition in adopted.partitions:
        ours = written[partition.topic, partition.partition]
        if (partition.topic, adopted.mode) == ("cut", "recover"):
            continue  # the bytes since an entry are not counted across a cut, here as in Kafka
        assert partition.indexes_rebuilt == [], partition.topic
        assert partition.segments == ours.segments
        assert (partition.log_start_offset, partition.log_end_offset) == (ours.start, ours.end)
        # Kafka's leader begins an epoch of its own, and every load does away with snapshots up to the
        # log's start and those that a cut has left; all else is as we left it.
        changed = {change.file.removesuffix(".tmp") for change in partition.changes}
        assert changed - old_snapshots(ours) <= {"leader-epoch-checkpoint"}


def old_snapshots(ours: Written) -> set[str]:
    kept = {path.stem for path in ours.folder.glob("*.log") if int(path.stem) > ours.start}
    kept.add(name(ours.end, ""))
    return {path.name for path in ours.folder.glob("*.snapshot") if path.stem not in kept}


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
def test_a_real_client_reads_what_we_read(
    adopted: Adoption, written: dict[Place, Written], committed: bool
) -> None:
    got = consume(adopted.bootstrap, written, committed=committed)
    for place, ours in written.items():
        assert got[place] == (ours.committed if committed else ours.seen), place


def test_kafkas_own_tool_finds_nothing_wrong(
    kafka_oracle: KafkaOracle, written: dict[Place, Written]
) -> None:
    """Every batch and record of every log, every entry of every index, every snapshot."""
    root = next(iter(written.values())).folder.parent

    def dump(*options: str, kinds: tuple[str, ...]) -> str:
        names = [
            path.relative_to(root).as_posix()
            for path in sorted(root.glob("*/*"))
            if path.suffix in kinds
        ]
        arguments = (*options, "--files", ",".join(names))
        run = kafka_oracle.distribution.tool("dump-log", *arguments, cwd=root)
        assert run.stdout.count("Dumping ") == len(names)
        said = run.stdout + run.stderr
        for word in ("ismatch", "isvalid: false", "orrupt", "not found", "Exception"):
            assert word not in said, (kinds, word)
        return run.stdout

    # The values are not printed, so that nothing in them can look like a line of the tool.
    dumps = parse_dump(dump("--deep-iteration", kinds=(".log",)).encode(), root)
    for ours in written.values():
        batches = [
            each
            for name, found in dumps.items()
            if (root / name).parent == ours.folder
            for each in found.batches
        ]
        assert all(each.is_valid for each in batches)
        seen = [r.offset for each in batches if not each.is_control for r in each.records]
        assert [at for at in seen if at >= ours.start] == [record.offset for record in ours.seen]
    # With the check the tool only says which are sane; without it every entry is compared with the log.
    sane = dump("--index-sanity-check", kinds=(".index", ".timeindex"))
    lines = [line for line in sane.splitlines() if not line.startswith("Dumping ")]
    assert len(lines) == sane.count("Dumping "), sane
    assert all(line.endswith(("passed sanity check.", "is empty.")) for line in lines), sane
    dump(kinds=(".index", ".timeindex"))
    dump(kinds=(".txnindex", ".snapshot"))
