"""What a write goes by: the topics that are there, and whether the rows can be written at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError
from stratalog.spark.options.columns import COLUMNS
from stratalog.spark.options.write_options import WriteOptions
from stratalog.storage.config_kinds import text_of
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log_config import LogConfig

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SinkPlan", "check_sink_schema", "plan_sink"]

_HEADERS: Final = "array<struct<key:string,value:binary>>"
#: The columns that are written, and the types that each may have.
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": (_HEADERS,),
}
#: What a read also gives and a write does not take: where a record was stored before, and its old batch. Rows
#: that were read are written as they are, and get a new place. Any other column is refused: it may be one of
#: those above, misspelled.
_NOT_WRITTEN: Final = frozenset(COLUMNS) - frozenset(_TYPES)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What every task of a write knows: the partitions of each topic, and of those yet to come."""

    options: WriteOptions
    counts: Mapping[str, int]
    configs: Mapping[str, LogConfig]

    @property
    def new_count(self) -> int:
        return self.options.partitions or 1

    def check_topic(self, topic: str) -> None:
        """UsageError where the topic exists, and is not what the options say it should be."""
        count = self.counts.get(topic)
        if count is None:
            return
        wanted = self.options.partitions
        if wanted is not None and wanted != count:
            raise UsageError(
                f"topic {topic!r} has {count} partitions, not partitions={wanted}: leave the option out"
            )
        if self.options.configs:
            _check_configs(topic, self.configs.get(topic), LogConfig.of(self.options.configs))


def check_sink_schema(schema: StructType, options: WriteOptions) -> None:
    """UsageError where these columns are no records."""
    names = [field.name for field in schema.fields]
    for name in _TYPES:
        if names.count(name) > 1:
            raise UsageError(f"{names.count(name)} columns are called {name}")
    for name in names:
        if name not in _TYPES and name not in _NOT_WRITTEN:
            raise UsageError(_unknown_column(name))
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise UsageError(
            f"no column value: there are {', '.join(names)}; for tombstones give it as null, as in "
            "'null as value'"
        )
    if options.topic is None and "topic" not in kinds:
        raise UsageError("no topic: the option topic, or a column topic, names it")
    for name, allowed in _TYPES.items():
        kind = kinds.get(name)
        if kind is not None and kind not in allowed and kind != "void":
            raise UsageError(
                f"the column {name} is of type {kind}, not {' or '.join(allowed)}: cast it first"
            )


def _unknown_column(name: str) -> str:
    lowered = {known.lower(): known for known in _TYPES}
    near = get_close_matches(name.lower(), lowered, n=1)
    meant = f"did you mean {lowered[near[0]]}? " if near else ""
    return f"a record has no column {name!r}: {meant}It has {', '.join(_TYPES)}; select those"


def _check_configs(topic: str, known: LogConfig | None, wanted: LogConfig) -> None:
    """UsageError where a topic that exists has another config than the write would give a new one."""
    for name, value in wanted.overrides().items():
        if known is None:
            raise UsageError(
                f"topic {topic!r} exists, and its configs are not stored in this directory: {name}={value} "
                "would be ignored; leave the option out"
            )
        found = text_of(getattr(known, name.replace(".", "_")))
        if found != value:
            raise UsageError(
                f"topic {topic!r} has {name}={found}, not {name}={value}: a write does not change an "
                "existing topic; omit the option"
            )


def plan_sink(options: WriteOptions, file_system: FileSystem | None = None) -> SinkPlan:
    """The plan for what is in the directory now. A topic that comes meanwhile with another number of
    partitions is noticed by the commit, before anything is written."""
    # Imported here: tasks do not need it.
    from stratalog.manager.root.topic_listing import list_topics

    partitions, configs = list_topics(options.root, file_system or OsFileSystem())
    counts = {topic: max(numbers) + 1 for topic, numbers in partitions.items()}
    if options.topic is not None:
        counts = {topic: each for topic, each in counts.items() if topic == options.topic}
    plan = SinkPlan(options, counts, configs)
    if options.topic in counts:
        plan.check_topic(options.topic)
        _check_complete(options, counts[options.topic], partitions[options.topic])
    return plan


def _check_complete(options: WriteOptions, count: int, numbers: set[int]) -> None:
    """UsageError where a partition of the topic is in another directory."""
    missing = set(range(count)) - numbers
    if missing:
        raise UsageError(
            f"partition {min(missing)} of topic {options.topic!r} is not in {options.root}: keys "
            "cannot be mapped to partitions"
        )
