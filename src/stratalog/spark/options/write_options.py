"""The options of a write: Spark's Kafka sink's own, and those of the log that it writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import UsageError
from stratalog.records.builder import BATCH_BYTES
from stratalog.records.layout import CODECS, INT32_MAX, INT64_MAX, Codec
from stratalog.spark.options.option_names import (
    IDLE_OPTIONS,
    KAFKA_OPTIONS,
    OWN_OPTIONS,
    SINK_OPTIONS,
    is_topic_config,
)
from stratalog.spark.options.options import Given, refuse_unknown
from stratalog.spark.options.paths import local_path
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.object_store import is_uri
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import check_topic

__all__ = ["WriteOptions"]

#: Between the name of a write and the topic that it counts for.
_OWNER_SIGN: Final = " > "
#: What a producer calls the same; other options of producers mean nothing to files.
_ALIASES: Final = {"kafka.compression.type": "compression", "kafka.batch.size": "batchSize"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Everything that a write was told. Pickled into tasks as it is."""

    root: str
    topic: str | None = None
    partitions: int | None = None
    by_key: bool = True
    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    stage_bytes: int = 16 << 20
    app_id: str | None = None
    app_version: int | None = None
    lock_timeout_s: float = 30.0
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def commit_key(self) -> CommitKey | None:
        """The name of a batch write that happens once; None where it was given none.

        In Delta Lake such a name is of one table. A topic comes nearest to that: one name may have several.
        """
        if self.app_id is None or self.app_version is None:
            return None
        owner = self.app_id if self.topic is None else f"{self.app_id}{_OWNER_SIGN}{self.topic}"
        return CommitKey(owner, self.app_version)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """The options as Spark gives them, checked: UsageError for what cannot be."""
        configs = {name: value for name, value in options.items() if is_topic_config(name)}
        plain = {name: value for name, value in options.items() if name not in configs}
        for alias, name in _ALIASES.items():
            if alias in plain and name.lower() not in plain:
                plain[name.lower()] = plain[alias]
        given = Given(plain)
        refuse_unknown(given.names(), SINK_OPTIONS, (*KAFKA_OPTIONS, *OWN_OPTIONS, *IDLE_OPTIONS))
        LogConfig.of(configs)  # says at once what is wrong with it
        app_id, version = given.text("txnAppId"), given.text("txnVersion")
        if (app_id is None) != (version is None):
            raise UsageError("txnAppId and txnVersion go together: set both or neither")
        if app_id is not None and _OWNER_SIGN in app_id:
            raise UsageError(f"txnAppId={app_id!r} must not contain {_OWNER_SIGN!r}")
        return cls(
            root=_root(given.path()),
            topic=_topic(given.text("topic")),
            partitions=_partitions(given.count("partitions")),
            by_key=given.word("partitioner", ("key", "roundrobin"), "key") == "key",
            codec=CODECS[given.word("compression", tuple(CODECS), "none")],
            level=given.count("compressionLevel"),
            batch_bytes=given.size("batchSize") or BATCH_BYTES,
            stage_bytes=given.size("stageBytes") or 16 << 20,
            app_id=app_id,
            app_version=None if version is None else _version(version),
            lock_timeout_s=given.duration_ms("lockTimeout", 30_000) / 1000,
            configs=configs,
        )


def _root(path: str | None) -> str:
    if path is None or not path.strip():
        raise UsageError('no directory to write to: .save("path/to/the/logs")')
    path = local_path(path)
    if is_uri(path):
        raise UsageError(f"{path}: logs are written to folders, not to an object store")
    if "," in path:
        raise UsageError(f"{path}: a write goes to one log directory")
    return os.path.abspath(path)  # executors work in folders of their own


def _topic(name: str | None) -> str | None:
    if name is not None:
        check_topic(name)
    return name


def _partitions(count: int | None) -> int | None:
    if count is not None and count > INT32_MAX:
        raise UsageError(f"partitions={count} are too many")
    return count


def _version(text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > INT64_MAX:
        raise UsageError(f"txnVersion={text!r}: a whole number that rises from write to write")
    return int(text)
