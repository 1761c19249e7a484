"""A topic's configs: Kafka 4.3's names, types, defaults and limits.

``retention.ms`` is Kafka's name and ``retention_ms`` the attribute; both are understood. Configs about
replicas and remote storage are checked and carried, so that a topic keeps what it came with: nothing here
acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.records.layout import INT64_MAX
from stratalog.storage.config_kinds import (
    ConfigKind,
    boolean,
    double,
    int32,
    int64,
    one_of,
    replica_list,
    text_of,
    words_of,
)

__all__ = ["ConfigRow", "LogConfig", "check_together"]

_DAY_MS: Final = 86_400_000
_FOREVER: Final = INT64_MAX
_AS_A_WHOLE: Final = -2  # local retention: the same as that of the whole log
_COMPACT: Final = "compact"
_DELETE: Final = "delete"

#: Names that older brokers knew, and why there is nothing like them.
_GONE: Final = {
    "message.format.version": "since Kafka 4.0 every topic is written in format 2",
    "message.timestamp.difference.max.ms": (
        "since Kafka 4.0 message.timestamp.before.max.ms and message.timestamp.after.max.ms say it"
    ),
    "message.downconversion.enable": "since Kafka 4.0 records are served as they are stored",
}


class ConfigRow(NamedTuple):
    """One config, told to people."""

    name: str
    type: str
    default: str
    allowed: str
    doc: str


def _is(kind: ConfigKind, doc: str) -> dict[str, object]:
    return {"kind": kind, "doc": doc}


@dataclass(frozen=True, slots=True, repr=False)
class LogConfig:
    """The configs of one topic. Made by :meth:`of`, which checks; ``LogConfig()`` has the defaults."""

    # The life of a segment.
    segment_bytes: int = field(
        default=1 << 30, metadata=_is(int32(1 << 20), "a segment never grows above this")
    )
    internal_segment_bytes: int | None = field(
        default=None,
        metadata=_is(int32(1), "for tests: replaces segment.bytes, and may be small"),
    )
    segment_ms: int = field(
        default=7 * _DAY_MS, metadata=_is(int64(1), "a segment takes records for so long")
    )
    segment_jitter_ms: int = field(
        default=0, metadata=_is(int64(0), "up to so much earlier, by chance, a segment is rolled")
    )
    segment_index_bytes: int = field(
        default=10 << 20,
        metadata=_is(int32(4), "an index that is full at this size rolls its segment"),
    )
    index_interval_bytes: int = field(
        default=4096, metadata=_is(int32(0), "one entry in the indexes for every so many bytes")
    )
    preallocate: bool = field(
        default=False, metadata=_is(boolean(), "set the space of a segment aside when it is opened")
    )
    # When records are safe.
    flush_messages: int = field(
        default=_FOREVER, metadata=_is(int64(1), "sync after so many records")
    )
    flush_ms: int = field(default=_FOREVER, metadata=_is(int64(0), "sync after so long"))
    # What happens to old records.
    cleanup_policy: tuple[str, ...] = field(
        default=(_DELETE,),
        metadata=_is(
            words_of(_COMPACT, _DELETE), "delete old segments, keep the last of each key, both"
        ),
    )
    retention_bytes: int = field(
        default=-1,
        metadata=_is(int64(), "what is above so many bytes is deleted; below 0: nothing"),
    )
    retention_ms: int = field(
        default=7 * _DAY_MS, metadata=_is(int64(-1), "what is older is deleted; -1: nothing")
    )
    file_delete_delay_ms: int = field(
        default=60_000, metadata=_is(int64(0), "a deleted segment's files stay for so long")
    )
    delete_retention_ms: int = field(
        default=_DAY_MS,
        metadata=_is(int64(0), "compaction keeps the news of a deleted key for so long"),
    )
    min_compaction_lag_ms: int = field(
        default=0, metadata=_is(int64(0), "a record is not compacted before this age")
    )
    max_compaction_lag_ms: int = field(
        default=_FOREVER,
        metadata=_is(int64(1), "a record is compacted at this age at the latest"),
    )
    min_cleanable_dirty_ratio: float = field(
        default=0.5,
        metadata=_is(double(0, 1), "compact when more than this part of the log is new"),
    )
    # What is accepted, and how it is stored.
    max_message_bytes: int = field(
        default=(1 << 20) + 12,
        metadata=_is(int32(0), "the largest batch, with all that belongs to it"),
    )
    compression_type: str = field(
        default="producer",
        metadata=_is(
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            "the codec on disk; producer: as it came",
        ),
    )
    compression_gzip_level: int = field(
        default=-1,
        metadata=_is(int32(1, 9, or_exactly=-1), "where we compress with gzip; -1: its own"),
    )
    compression_lz4_level: int = field(
        default=9, metadata=_is(int32(1, 17), "where we compress with lz4")
    )
    compression_zstd_level: int = field(
        default=3, metadata=_is(int32(-131072, 22), "where we compress with zstd")
    )
    message_timestamp_type: str = field(
        default="CreateTime",
        metadata=_is(one_of("CreateTime", "LogAppendTime"), "whose clock: the producer's or ours"),
    )
    message_timestamp_before_max_ms: int = field(
        default=_FOREVER, metadata=_is(int64(0), "a record may be so much behind our clock")
    )
    message_timestamp_after_max_ms: int = field(
        default=3_600_000, metadata=_is(int64(0), "a record may be so much ahead of our clock")
    )
    # Carried: about replicas and remote storage.
    min_insync_replicas: int = field(
        default=1, metadata=_is(int32(1), "carried: so many replicas must have a record")
    )
    unclean_leader_election_enable: bool = field(
        default=False, metadata=_is(boolean(), "carried: a replica that is behind may lead")
    )
    leader_replication_throttled_replicas: tuple[str, ...] = field(
        default=(),
        metadata=_is(replica_list(), "carried: replicas slowed down on the leader's side"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = field(
        default=(),
        metadata=_is(replica_list(), "carried: replicas slowed down on the follower's side"),
    )
    remote_storage_enable: bool = field(
        default=False, metadata=_is(boolean(), "carried: copy segments to remote storage")
    )
    remote_log_copy_disable: bool = field(
        default=False, metadata=_is(boolean(), "carried: copy no more segments")
    )
    remote_log_delete_on_disable: bool = field(
        default=False,
        metadata=_is(boolean(), "carried: without remote storage, delete what is there"),
    )
    local_retention_bytes: int = field(
        default=_AS_A_WHOLE,
        metadata=_is(int64(-2), "carried: what stays here; -2: as retention.bytes"),
    )
    local_retention_ms: int = field(
        default=_AS_A_WHOLE,
        metadata=_is(int64(-2), "carried: what stays here; -2: as retention.ms"),
    )

    #: The names of those that were given, also where they were given as the default has them.
    given: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, configs: Mapping[str, object] | None = None, /, **names: object) -> LogConfig:
        """The configs of a topic, checked one by one and against each other.

        Values are text or typed, names have dots or underscores. UsageError says which one is wrong and
        what is allowed.
        """
        values: dict[str, Any] = {}
        for given, value in [*(configs or {}).items(), *names.items()]:
            entry = _find(given)
            if entry.name in values:
                raise UsageError(f"{_dotted(entry.name)} is given twice")
            kind: ConfigKind = entry.metadata["kind"]
            try:
                values[entry.name] = kind.read(value)
            except ValueError:
                raise UsageError(
                    f"{_dotted(entry.name)}: {value!r} is not {kind.allowed}"
                ) from None
        config = cls(**values, given=frozenset(map(_dotted, values)))
        check_together(config)
        return config

    @property
    def effective_segment_bytes(self) -> int:
        """How large a segment may grow."""
        if self.internal_segment_bytes is not None:
            return self.internal_segment_bytes
        return self.segment_bytes

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return _COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted, by age and size."""
        return _DELETE in self.cleanup_policy

    def overrides(self) -> dict[str, str]:
        """What was given, under Kafka's names and in its text: :meth:`of` takes it back."""
        return {
            name: text_of(getattr(self, entry.name))
            for name, entry in _FIELDS.items()
            if name in self.given
        }

    def text(self, name: str) -> str:
        """Return the value of a config by Kafka's name, in its text."""
        return text_of(getattr(self, _FIELDS[name].name))

    @staticmethod
    def name_of(given: object) -> str:
        """Return Kafka's name of a config, also if it is given with underscores. UsageError if there is no
        such config."""
        return _dotted(_find(given).name)

    @staticmethod
    def kind_of(name: str) -> ConfigKind:
        """Return the kind of values that a config has, by Kafka's name."""
        kind: ConfigKind = _FIELDS[name].metadata["kind"]
        return kind

    @staticmethod
    def describe() -> list[ConfigRow]:
        """Every config there is, by name."""
        return [
            ConfigRow(
                name,
                entry.metadata["kind"].type,
                text_of(entry.default),
                entry.metadata["kind"].allowed,
                entry.metadata["doc"],
            )
            for name, entry in sorted(_FIELDS.items())
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.overrides().items())
        return f"LogConfig({shown})"


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


_FIELDS: Final[dict[str, Field[Any]]] = {
    _dotted(entry.name): entry for entry in fields(LogConfig) if entry.metadata
}


def _find(given: object) -> Field[Any]:
    name = _dotted(given) if isinstance(given, str) else ""
    entry = _FIELDS.get(name)
    if entry is not None:
        return entry
    if name in _GONE:
        raise UsageError(f"{name} is gone: {_GONE[name]}")
    import difflib  # only here: whoever spells it right need not load it

    # A broker's default has the same name behind "log.".
    nearest = difflib.get_close_matches(name.removeprefix("log."), _FIELDS, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise UsageError(f"{given!r} is not a topic config{hint}")


def check_together(config: LogConfig) -> None:
    """Raise UsageError if the values contradict each other."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise UsageError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is above"
            f" max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if not config.remote_storage_enable:
        return  # as in Kafka: without remote storage, local retention means nothing
    if config.compacts:
        raise UsageError("remote.storage.enable: not with cleanup.policy=compact")
    for whole, local in (
        ("retention.bytes", "local.retention.bytes"),
        ("retention.ms", "local.retention.ms"),
    ):
        limit = getattr(config, _FIELDS[whole].name)
        kept = getattr(config, _FIELDS[local].name)
        if limit >= 0 and kept != _AS_A_WHOLE and not 0 <= kept <= limit:
            raise UsageError(f"{local} ({kept}) is above {whole} ({limit})")
