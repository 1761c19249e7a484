"""Read a broker's configs from its ``server.properties``. Errors name the file and the line."""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from stratalog.errors import LimitExceededError, StorageError, UsageError
from stratalog.storage.broker_config import BrokerConfig, broker_config_name, broker_config_value
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.properties import PropertiesError, Property, parse_properties

__all__ = ["read_server_properties"]

_SIZE_MAX: Final = 1 << 20


def read_server_properties(
    path: str | os.PathLike[str], file_system: FileSystem | None = None
) -> BrokerConfig:
    """Return the configs of a file of Java properties. If a name is there twice, the later line counts, as in
    Kafka. UsageError names the file and the line that is wrong."""
    path = os.fspath(path)
    properties = _read(file_system or OsFileSystem(), path)
    given: dict[str, Any] = {}
    carried: dict[str, None] = {}
    for each in {each.name: each for each in properties}.values():
        try:
            _take(each, given, carried)
        except UsageError as error:
            raise UsageError(f"{path}, line {each.line}: {error}") from None
    try:
        return BrokerConfig.of_checked(given, carried)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _read(file_system: FileSystem, path: str) -> list[Property]:
    try:
        data = read_small_file(file_system, path, size_max=_SIZE_MAX)
    except LimitExceededError as error:
        raise UsageError(f"{path}: {error.detail}: this is not a server.properties") from None
    if data is None:
        raise StorageError("no such file or directory", path=path, errno=errno.ENOENT)
    try:
        return parse_properties(data)
    except PropertiesError as error:
        raise UsageError(f"{path}, line {error.line}: {error.detail}") from None


def _take(each: Property, given: dict[str, Any], carried: dict[str, None]) -> None:
    if not each.name:
        raise UsageError("there is no name before the value")
    name = broker_config_name(each.name)
    if name is None:
        carried[each.name] = None
    elif name != each.name:
        raise UsageError(f"{each.name!r} is not a broker config; did you mean {name}?")
    else:
        given[name] = broker_config_value(name, each.value)
