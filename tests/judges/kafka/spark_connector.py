"""Spark's own Kafka connector: its jars, fetched once with Maven into the oracle's cache.

Of Spark 4.3 there is no connector of its own version to be had; this set was seen to work with it. Each jar
is named by itself, without what it depends on: the parent pom names a repository that nobody reaches.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.judges.kafka.oracle import WITHOUT_TRANSITIVE, _maven, cache_root

ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars() -> list[Path]:
    """The jars for ``spark.jars``; OracleUnavailable where they cannot be had."""
    folder = cache_root() / "spark-connector"
    wanted = [folder / f"{name}-{version}.jar" for _, name, version in ARTIFACTS]
    if not all(path.exists() for path in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache_root()) as name:
            jars = Path(name, "jars")
            dependencies = [(*each, WITHOUT_TRANSITIVE) for each in ARTIFACTS]
            _maven(Path(name), dependencies, "copy-dependencies", f"-DoutputDirectory={jars}")
            for path in jars.glob("*.jar"):
                path.replace(folder / path.name)
    return wanted
