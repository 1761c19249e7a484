"""Real Apache Kafka for tests that are marked `interop`; they skip where it cannot be had.

from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle  # noqa: F401

@pytest.mark.interop
def test_kafka_reads_what_we_wrote(kafka_oracle: KafkaOracle, tmp_path: Path) -> None:
    (dump,) = kafka_oracle.dump_log(tmp_path / "00000000000000000000.log")
    broker = kafka_oracle.broker(tmp_path / "broker", config={"log.dirs": "a,b"})
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.judges.kafka import oracle
from tests.judges.peers.dump_log import DumpFile, parse_dump


@dataclass(frozen=True, slots=True)
class KafkaOracle:
    """A fetched distribution and what tests ask of it. Nothing runs until a method is called."""

    distribution: oracle.Distribution

    def dump_log(self, *segments: Path) -> list[DumpFile]:
        """What `dump-log --deep-iteration` finds in `.log` files of one folder; about 0.7 s.

        Keys and values are not printed, so nothing in them can look like a line of the tool.
        """
        folder = segments[0].parent
        names = [segment.relative_to(folder).as_posix() for segment in segments]
        run = self.distribution.tool(
            "dump-log", "--deep-iteration", "--files", ",".join(names), cwd=folder
        )
        found = parse_dump(run.stdout.encode(), folder)
        return [found[name] for name in names]

    def broker(self, directory: Path, config: Mapping[str, object] | None = None) -> oracle.Kafka:
        """A broker to be used with `with`, or for `adopt`; it is not started."""
        return oracle.Kafka(
            directory,
            distribution=self.distribution,
            config=config,
        )


@functools.cache
def fetch_or_reason() -> oracle.Distribution | str:
    """The distribution, or the one line that says why there is none. Fetches at most once."""
    try:
        return oracle.fetch()
    except oracle.OracleUnavailable as reason:
        return str(reason)


def require_kafka() -> KafkaOracle:
    """The oracle, or a skip with the reason. For fixtures and for tests without one."""
    fetched = fetch_or_reason()
    if isinstance(fetched, str):
        pytest.skip(f"real Kafka is not available: {fetched}")
    return KafkaOracle(fetched)


@pytest.fixture(scope="session")
def kafka_oracle() -> KafkaOracle:
    return require_kafka()
