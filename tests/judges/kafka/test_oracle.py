"""Real Kafka runs here, and what its tool says of the golden files is what was recorded."""

import dataclasses
from pathlib import Path

import pytest

from tests.judges.kafka import oracle
from tests.judges.peers.golden import golden_set
from tests.judges.peers.oracle_fixture import (
    KafkaOracle,
    fetch_or_reason,
    kafka_oracle,
    require_kafka,
)

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["v0-nulls", "v1-appendtime", "mixed", "v2-headers-and-nulls"])
def test_dump_log_of_golden_segments_equals_recorded_dump(
    kafka_oracle: KafkaOracle, name: str
) -> None:
    golden = golden_set(name)
    for partition in golden.partitions():
        dumps = kafka_oracle.dump_log(*partition.segments)
        for segment, dump in zip(partition.segments, dumps, strict=True):
            assert dump.complete
            assert [_without_sequences(batch.records) for batch in dump.batches] == [
                _without_sequences(batch.records) for batch in golden.dump_batches(segment)
            ]
            assert [dataclasses.replace(batch, records=()) for batch in dump.batches] == [
                dataclasses.replace(batch, records=()) for batch in golden.dump_batches(segment)
            ]


def _without_sequences(records: tuple[object, ...]) -> list[object]:
    return [record._replace(sequence=None) for record in records]  # type: ignore[attr-defined]


def test_broker_starts_and_serves(kafka_oracle: KafkaOracle, tmp_path: Path) -> None:
    with kafka_oracle.broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", 2)
        assert len(broker.topics()["orders"].partitions) == 2


def test_unavailable_kafka_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> oracle.Distribution:
        raise oracle.OracleUnavailable("Java is not installed")

    monkeypatch.setattr(oracle, "fetch", refuse)
    fetch_or_reason.cache_clear()
    try:
        with pytest.raises(pytest.skip.Exception, match="Java is not installed"):
            require_kafka()
    finally:
        fetch_or_reason.cache_clear()
