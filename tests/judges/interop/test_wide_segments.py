"""A segment that is wider than an index can say: split here as Kafka splits it, and then adopted by Kafka.

Both get the same folder and must recover it. Not one byte of a batch is lost or changed, a real client reads
the same from either, and Kafka has nothing to say about what was made of it here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.records.scan import scan_batches
from tests.judges.interop.real_client import consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.storage.logs import bases, batch, name, open_log, records
from tests.storage.wide_segments import FAR

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

CONFIGS: dict[str, object] = {"index.interval.bytes": 512, "retention.ms": -1}
#: As compaction leaves offsets: with gaps, and at last beyond what 31 bits can say; once, and once more.
AT = [*range(0, 300, 3), FAR - 2, FAR - 1, *range(FAR, FAR + 200, 2), *range(3 * FAR, 3 * FAR + 50)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide") / "theirs-0"
    folder.mkdir()
    data = b"".join(
        batch(b"%d " % at * 9, key=b"%d" % at, base_offset=at, leader_epoch=0) for at in AT
    )
    (folder / name(0, ".log")).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def broker(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[oracle.Kafka]:
    made = kafka_oracle.broker(tmp_path_factory.mktemp("kafka") / "broker")
    try:
        yield made
    finally:
        made.kill()


def batches_in(folder: Path) -> dict[int, bytes]:
    """Where every data file begins, and its batches."""
    return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.log"))}


def test_it_is_split_as_kafka_splits_it(broker: oracle.Kafka, wide: Path) -> None:
    ours = Path(shutil.copytree(wide, wide.with_name("ours-0")))
    log = open_log(ours, CONFIGS)
    seen = records(log)
    assert bases(log) == [0, FAR, 3 * FAR]
    assert log.report.split_segments == [(0, [0, FAR, 3 * FAR])]
    log.close()

    theirs = broker.adopt(wide, mode="recover", topic_config=CONFIGS)
    (partition,) = theirs.partitions
    assert partition.log_end_offset == log.log_end
    folder = broker.partition_dir(oracle.TopicPartition("theirs", 0))
    assert folder is not None
    assert batches_in(folder) == batches_in(ours)
    assert b"".join(batches_in(ours).values()) == (wide / name(0, ".log")).read_bytes()

    adopted = broker.adopt(ours, mode="recover", topic_config=CONFIGS)
    assert adopted.warnings == []
    (partition,) = adopted.partitions
    assert adopted.intact
    assert partition.segments == 3
    assert partition.indexes_rebuilt == []
    assert [
        header.base_offset for header in scan_batches((wide / name(0, ".log")).read_bytes())
    ] == AT
    places = {("theirs", 0): None, ("ours", 0): None}
    got = consume(broker.bootstrap, places)
    assert [record.offset for record in seen] == AT
    assert got["theirs", 0] == got["ours", 0] == seen
