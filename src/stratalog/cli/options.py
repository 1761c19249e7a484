"""Parse sizes, times and lists as people type them, and define the options that several verbs share."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from stratalog.cli.reporter import Reporter
from stratalog.errors import UsageError
from stratalog.records.layout import CODECS, INT64_MAX

__all__ = [
    "COLUMNS",
    "OFFSETS",
    "PATHS",
    "SIZE",
    "TIME",
    "Chosen",
    "Roots",
    "checks",
    "limits",
    "new_topic",
    "partitions",
    "roots",
]

if TYPE_CHECKING:
    from stratalog.storage.broker_config import BrokerConfig

_UNITS: Final = {
    "": 1, "b": 1,
    "k": 1 << 10, "m": 1 << 20, "g": 1 << 30,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
}  # fmt: skip
_SIZE: Final = re.compile(r"([0-9]+)\s*([a-z]*)", re.IGNORECASE)
_MILLISECONDS: Final = re.compile(r"-?[0-9]+")


class _SizeType(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        if match is None or match[2].lower() not in _UNITS:
            self.fail(f"{value!r} is not a size: write 10MiB, 64KB or bytes", param, ctx)
        size = int(match[1]) * _UNITS[match[2].lower()]
        if size < 1:
            self.fail(f"{value!r} is not a size: it must be at least 1 byte", param, ctx)
        if size > INT64_MAX:
            self.fail(f"{value!r} is larger than 2^63-1 bytes", param, ctx)
        return size


class _TimeType(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if _MILLISECONDS.fullmatch(value):
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time: write 2024-03-13T09:00:00Z, or milliseconds since 1970",
                param,
                ctx,
            )
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


class _ColumnsType(click.ParamType[tuple[str, ...]]):
    name = "a,b,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(","))
        if not all(names):
            self.fail(f"{value!r} contains an empty column name", param, ctx)
        return names


SIZE: Final = _SizeType()
TIME: Final = _TimeType()
COLUMNS: Final = _ColumnsType()


def _topics(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...] | None:
    """One option may name several: no topic has a comma in its name."""
    return tuple(name for some in given for name in some.split(",")) or None


#: Whether something is there is not a question of usage: it has an exit code of its own.
PATHS: Final = click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path()
)

OFFSETS: Final = click.option(
    "--offsets",
    metavar="RANGE",
    help="Range in each partition: 100, 100:200, :200, :+10 (first ten), -10 (last ten), @2024-03-13, @-2h.",
)

_TOPIC: Final = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    callback=_topics,
    help="Only this topic. May contain the wildcards * and ?, and may be repeated.",
)
_PARTITION: Final = click.option(
    "-p", "--partition", "partitions", metavar="0,2-5", help="Only these partitions."
)


class Chosen(NamedTuple):
    """What a command is about: paths, and of these only some topics and partitions."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None
    partitions: str | None


def partitions(command: Any) -> Any:
    """Add the arguments of every verb that takes folders: paths, topics and partitions. The command gets them
    as one value, ``chosen``."""

    @wraps(command)
    def called(
        *args: Any,
        paths: tuple[str, ...],
        topics: tuple[str, ...] | None,
        partitions: str | None,
        **options: Any,
    ) -> Any:
        return command(*args, chosen=Chosen(paths, topics, partitions), **options)

    return PATHS(_TOPIC(_PARTITION(called)))


_ROOT: Final = click.argument("directory", metavar="[DIR]", required=False, type=click.Path())
_BROKER: Final = click.option(
    "--config",
    "properties",
    type=click.Path(),
    metavar="FILE",
    help="Kafka's server.properties: defaults for all topics, and log.dirs if DIR is not given.",
)
_CARRIED_MAX: Final = 10


class Roots(NamedTuple):
    """The log directories that a command opens to change them, and the broker configs for that."""

    directories: tuple[str, ...]
    broker: BrokerConfig


def roots(command: Any) -> Any:
    """Add the arguments of every verb that opens log directories to change them, or plans a change: DIR and
    ``--config``. The command gets them as one value, ``roots``."""

    @wraps(command)
    def called(*args: Any, directory: str | None, properties: str | None, **options: Any) -> Any:
        broker = _broker_config(properties)
        directories = (directory,) if directory is not None else broker.directories
        if not directories:
            raise UsageError("no log directory: name one, or give --config with log.dirs")
        return command(*args, roots=Roots(directories, broker), **options)

    return _ROOT(_BROKER(called))


def _broker_config(path: str | None) -> BrokerConfig:
    # Imported here: few verbs need it.
    from stratalog.storage.broker_config import BrokerConfig
    from stratalog.storage.server_properties import read_server_properties

    if path is None:
        return BrokerConfig()
    broker = read_server_properties(path)
    reporter = click.get_current_context().find_object(Reporter)
    if broker.carried and reporter is not None:
        reporter.note(f"{path}: no effect here: {_some(broker.carried)}")
    return broker


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _CARRIED_MAX
    return ", ".join(names[:_CARRIED_MAX]) + (f" and {more} more" if more > 0 else "")


_MAX_BATCH: Final = click.option(
    "--max-batch-bytes",
    type=SIZE,
    default="256MiB",
    show_default=True,
    help="Treat a larger batch as damage.",
)
_MAX_DECOMPRESSED: Final = click.option(
    "--max-decompressed-bytes",
    type=SIZE,
    default="256MiB",
    show_default=True,
    help="Stop at a batch that decompresses to more than this.",
)


def limits(command: Any) -> Any:
    """Adds the two limits that every reading verb has."""
    return _MAX_BATCH(_MAX_DECOMPRESSED(command))


_DEEP: Final = click.option("--deep", is_flag=True, help="Also decompress and decode every record.")
_GAPS: Final = click.option(
    "--gaps",
    is_flag=True,
    help="Also note gaps between offsets within a segment, which compaction leaves.",
)


def checks(command: Any) -> Any:
    """Adds what verifying may check more than it does by itself."""
    return _DEEP(_GAPS(command))


_NEW_PARTITIONS: Final = click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions of a new topic.",
)
_COMPRESSION: Final = click.option(
    "-z",
    "--compression",
    type=click.Choice(tuple(CODECS)),
    default="none",
    help="Compress batches with this codec.",
)
_CONFIGS: Final = click.option(
    "-c",
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Config of a new topic, such as retention.ms=-1. May be repeated.",
)


def new_topic(command: Any) -> Any:
    """Adds what every verb has that writes into a topic and may create it."""
    return _NEW_PARTITIONS(_COMPRESSION(_CONFIGS(command)))
