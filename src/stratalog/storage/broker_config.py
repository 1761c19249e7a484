"""A broker's configs: Kafka 4.3's names, types, defaults and limits.

Some are defaults for all topics, such as ``log.retention.hours`` for ``retention.ms``. A topic's own config
comes first, then the broker's, then Kafka's default. Names that have no effect here, such as ``listeners``,
are accepted and listed in ``carried``, so that a ``server.properties`` can be used as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Final, Literal, NamedTuple

from stratalog.errors import UsageError
from stratalog.storage.broker_names import SYNONYMS, Synonym, is_carried, known_names
from stratalog.storage.config_kinds import (
    ConfigKind,
    boolean,
    double,
    folders,
    int32,
    int64,
    text_of,
)
from stratalog.storage.log_config import ConfigRow, LogConfig, check_together

__all__ = [
    "BrokerConfig",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "TopicDefault",
    "broker_config_name",
    "broker_config_value",
    "describe_topic",
]

_DEDUPE_BYTES_PER_THREAD: Final = 1 << 20
_KEY_BYTES: Final = 24  # that a key takes in the cleaner's map
_DOUBLE_MAX: Final = 1.7976931348623157e308

#: Where a value comes from: the topic's own config, the broker's, or Kafka's default.
ConfigSource = Literal["topic", "broker", "default"]


class TopicDefault(NamedTuple):
    """The broker's default of a topic config, and the broker config that set it."""

    value: Any
    set_by: str


class ConfigSynonym(NamedTuple):
    """One of the places that a value could come from, under its name there and in that place's unit."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A config of a topic as it is in effect.

    ``set_by`` is the name under which it was set: a broker's for the source ``broker``, the config's own
    otherwise. ``synonyms`` are all places that have a value, the one that counts first.
    """

    name: str
    value: str
    source: ConfigSource
    set_by: str
    synonyms: tuple[ConfigSynonym, ...]
    type: str
    doc: str


def _is(kind: ConfigKind, doc: str) -> dict[str, object]:
    return {"kind": kind, "doc": doc}


@dataclass(frozen=True, slots=True, repr=False)
class BrokerConfig:
    """The configs of a broker. Made by :meth:`of`, which checks; ``BrokerConfig()`` has the defaults."""

    log_dirs: tuple[str, ...] | None = field(
        default=None, metadata=_is(folders(), "the log directories; log.dir if it is not set")
    )
    log_dir: tuple[str, ...] | None = field(
        default=None, metadata=_is(folders(), "the log directories if log.dirs is not set")
    )
    num_partitions: int = field(
        default=1, metadata=_is(int32(1), "partitions of a new topic if the caller names no number")
    )
    # Background work.
    log_initial_task_delay_ms: int = field(
        default=30_000, metadata=_is(int64(0), "background jobs first run so long after opening")
    )
    log_retention_check_interval_ms: int = field(
        default=300_000, metadata=_is(int64(1), "pause between two rounds of retention")
    )
    log_flush_offset_checkpoint_interval_ms: int = field(
        default=60_000, metadata=_is(int32(0), "pause between checkpoints of recovery points")
    )
    log_flush_start_offset_checkpoint_interval_ms: int = field(
        default=60_000, metadata=_is(int32(0), "pause between checkpoints of log start offsets")
    )
    producer_id_expiration_ms: int = field(
        default=86_400_000,
        metadata=_is(int32(1), "a producer that was idle for so long is forgotten"),
    )
    producer_id_expiration_check_interval_ms: int = field(
        default=600_000, metadata=_is(int32(1), "pause between two searches for idle producers")
    )
    # The cleaner.
    log_cleaner_enable: bool = field(
        default=True, metadata=_is(boolean(), "whether compacted topics are cleaned")
    )
    log_cleaner_threads: int = field(
        default=1, metadata=_is(int32(1), "logs that are cleaned at the same time")
    )
    log_cleaner_dedupe_buffer_size: int = field(
        default=128 << 20, metadata=_is(int64(), "bytes of the offset maps of all cleaner threads")
    )
    log_cleaner_io_buffer_size: int = field(
        default=512 << 10, metadata=_is(int32(0), "bytes of the I/O buffers of all cleaner threads")
    )
    log_cleaner_io_buffer_load_factor: float = field(
        default=0.9, metadata=_is(double(0, 1), "how full the offset map may become")
    )
    log_cleaner_io_max_bytes_per_second: float = field(
        default=_DOUBLE_MAX,
        metadata=_is(double(0, _DOUBLE_MAX), "bytes that the cleaner reads and writes per second"),
    )
    log_cleaner_backoff_ms: int = field(
        default=15_000, metadata=_is(int64(0), "pause of the cleaner if nothing is to be cleaned")
    )

    #: Defaults for all topics that were given, by the name of the topic config.
    topic_defaults: Mapping[str, TopicDefault] = field(default_factory=dict)
    #: What was given, by name; without names that have no effect.
    given: Mapping[str, Any] = field(default_factory=dict)
    #: Names that were given and have no effect here, in their order.
    carried: tuple[str, ...] = ()

    @classmethod
    def of(cls, configs: Mapping[str, object] | None = None, /) -> BrokerConfig:
        """Check configs one by one and against each other.

        Values are text or typed, names have dots or underscores. UsageError says which one is wrong and
        what is allowed; for an unknown name, the nearest known one.
        """
        given: dict[str, Any] = {}
        carried: list[str] = []
        for raw, value in (configs or {}).items():
            name = broker_config_name(raw)
            if name is None:
                carried.append(raw)
            elif name in given:
                raise UsageError(f"{name} is given twice")
            else:
                given[name] = broker_config_value(name, value)
        return cls.of_checked(given, carried)

    @classmethod
    def of_checked(cls, given: Mapping[str, Any], carried: Iterable[str]) -> BrokerConfig:
        """Combine values that were checked one by one; UsageError if they contradict each other."""
        own = {_FIELDS[name].name: value for name, value in given.items() if name in _FIELDS}
        config = cls(
            **own, topic_defaults=_topic_defaults(given), given=given, carried=tuple(carried)
        )
        _check(config)
        return config

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories: those of ``log.dirs``, else of ``log.dir``; none if neither was given."""
        return self.log_dirs or self.log_dir or ()

    def log_config(self, topic: LogConfig | None = None) -> LogConfig:
        """Return the configs that are in effect for a topic with these configs of its own, which are the only
        ones in ``overrides``."""
        config = topic or LogConfig()
        values = {
            name.replace(".", "_"): default.value
            for name, default in self.topic_defaults.items()
            if name not in config.given
        }
        return replace(config, **values) if values else config

    @staticmethod
    def describe() -> list[ConfigRow]:
        """Return every broker config that has an effect, by name."""
        return [_row(name) for name in sorted(_KINDS)]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={text_of(value)}" for name, value in self.given.items())
        return f"BrokerConfig({shown})"


_FIELDS: Final[dict[str, Field[Any]]] = {
    entry.name.replace("_", "."): entry for entry in fields(BrokerConfig) if entry.metadata
}
_SYNONYMS: Final = {each.name: (topic, each) for topic, some in SYNONYMS.items() for each in some}
_KINDS: Final[dict[str, ConfigKind]] = {
    **{name: entry.metadata["kind"] for name, entry in _FIELDS.items()},
    **{name: synonym.kind for name, (_, synonym) in _SYNONYMS.items()},
}
_TOPIC_ROWS: Final = {row.name: row for row in LogConfig.describe()}


def broker_config_name(given: object) -> str | None:
    """Return Kafka's name of a broker config, also if it is given with underscores; None if it has no effect
    here. UsageError if there is no such config."""
    if not isinstance(given, str):
        raise UsageError(f"{given!r} is not a broker config")
    dotted = given.replace("_", ".")
    if dotted in _KINDS:
        return dotted
    if dotted not in _TOPIC_ROWS and (is_carried(given) or is_carried(dotted)):
        return None
    raise UsageError(_unknown(given, dotted))


def broker_config_value(name: str, value: object) -> Any:
    """Return the value of a broker config, typed; UsageError if it is not allowed."""
    kind = _KINDS[name]
    try:
        return kind.read(value)
    except ValueError:
        raise UsageError(f"{name}: {value!r} is not {kind.allowed}") from None


def _unknown(given: str, name: str) -> str:
    if name in SYNONYMS:
        default = SYNONYMS[name][0].name
        return f"{given!r} is a config of a topic: {default} is the default for all topics"
    if name in _TOPIC_ROWS:
        return f"{given!r} is a config of a topic, without a default for all topics: set it on the topic"
    import difflib  # only here: a name that is spelled right need not load it

    nearest = difflib.get_close_matches(name, {*_KINDS, *known_names()}, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{given!r} is not a broker config{hint}"


def _topic_defaults(given: Mapping[str, Any]) -> dict[str, TopicDefault]:
    """Return the broker's defaults of topic configs: the first synonym that was given counts."""
    found = {}
    for topic, synonyms in SYNONYMS.items():
        first = next((each for each in synonyms if each.name in given), None)
        if first is not None:
            found[topic] = TopicDefault(_in_topic_unit(topic, first, given[first.name]), first.name)
    return found


def _in_topic_unit(topic: str, synonym: Synonym, value: Any) -> Any:
    """Return the value of a synonym as one of its topic config; UsageError if a topic cannot have it."""
    if topic == "retention.ms":
        if value == 0:
            raise UsageError(f"{synonym.name}: 0 is not -1, which is unlimited, or 1 or more")
        if value < 0:  # as in Kafka: unlimited
            return -1
    value = value if synonym.unit_ms is None else value * synonym.unit_ms
    kind = LogConfig.kind_of(topic)
    try:
        return kind.read(value)
    except ValueError:
        raise UsageError(f"{synonym.name}: {value!r} is not {kind.allowed}") from None


def _check(config: BrokerConfig) -> None:
    size, threads = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_threads
    if size // threads <= _DEDUPE_BYTES_PER_THREAD:
        raise UsageError(
            f"log.cleaner.dedupe.buffer.size ({size}) is not above 1 MiB for each of the "
            f"log.cleaner.threads ({threads})"
        )
    factor = config.log_cleaner_io_buffer_load_factor
    if size // threads * factor < _KEY_BYTES:
        raise UsageError(
            f"log.cleaner.io.buffer.load.factor ({factor:g}) leaves no room for a single key: Kafka's "
            "default is 0.9"
        )
    if config.log_cleaner_io_max_bytes_per_second == 0:
        raise UsageError(
            "log.cleaner.io.max.bytes.per.second: 0 is not above 0; the cleaner would never finish"
        )
    check_together(config.log_config())


def _row(name: str) -> ConfigRow:
    kind = _KINDS[name]
    if name in _FIELDS:
        entry = _FIELDS[name]
        return ConfigRow(
            name, kind.type, text_of(entry.default), kind.allowed, entry.metadata["doc"]
        )
    topic, synonym = _SYNONYMS[name]
    return ConfigRow(
        name,
        kind.type,
        text_of(synonym.default),
        kind.allowed,
        f"default of {topic} for all topics",
    )


def describe_topic(broker: BrokerConfig, topic: LogConfig) -> dict[str, ConfigEntry]:
    """Return every config of a topic by name: its value in effect, where that comes from, and its synonyms,
    as Kafka's DescribeConfigs does. Kafka 4.3 leaves out synonyms if a config has several, such as
    ``log.retention.hours``; here they are listed."""
    config = broker.log_config(topic)
    return {name: _entry(broker, config, row) for name, row in _TOPIC_ROWS.items()}


def _entry(broker: BrokerConfig, config: LogConfig, row: ConfigRow) -> ConfigEntry:
    synonyms = _synonyms(broker, config, row.name)
    source: ConfigSource = synonyms[0].source if synonyms else "default"
    set_by = synonyms[0].name if source == "broker" else row.name
    return ConfigEntry(row.name, config.text(row.name), source, set_by, synonyms, row.type, row.doc)


def _synonyms(broker: BrokerConfig, config: LogConfig, name: str) -> tuple[ConfigSynonym, ...]:
    own = [ConfigSynonym(name, config.text(name), "topic")] if name in config.given else []
    known = SYNONYMS.get(name, ())
    brokers = [
        ConfigSynonym(each.name, text_of(broker.given[each.name]), "broker")
        for each in known
        if each.name in broker.given
    ]
    defaults = [
        ConfigSynonym(each.name, text_of(each.default), "default")
        for each in known
        if each.default is not None
    ]
    return (*own, *brokers, *defaults)
