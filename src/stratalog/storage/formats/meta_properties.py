"""``meta.properties``: whose log directory this is. A text of Java properties.

    #
    #Sun Nov 15 20:40:53 UTC 2026
    node.id=1
    directory.id=R8WDbwsa6b0SUS-lnJfu_g
    version=1
    cluster.id=ZstmTMyKSx6He5M8vdE77A

Version 0 is that of the ZooKeeper days: ``broker.id`` in place of ``node.id``, and nothing is required.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.storage.formats.kafka_uuid import format_uuid, is_reserved, parse_uuid
from stratalog.storage.formats.properties import PropertiesError, parse_properties

__all__ = [
    "MetaProperties",
    "decode_meta_properties",
    "encode_meta_properties",
]

_VERSIONS: Final = (0, 1)
_NEWEST: Final = 1

_MUST_ESCAPE: Final = re.compile(r"[\\=:#!]|^ ")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_PRINTABLE: Final = re.compile(r"[ -~]+")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The ids of cluster, node and directory. ``node_id`` is version 0's ``broker.id``."""

    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None = None
    version: int = _NEWEST


def encode_meta_properties(properties: MetaProperties, *, written: str = "") -> bytes:
    """The file's text in version 1, in the order that Kafka's hash gives.

    ``written`` is for people, and for Kafka's likeness: the date in its second line.
    """
    cluster_id, node_id = properties.cluster_id, properties.node_id
    if cluster_id is None or node_id is None or not _PRINTABLE.fullmatch(cluster_id):
        raise UsageError("meta.properties needs a node.id, and a cluster.id of plain characters")
    if written and not _PRINTABLE.fullmatch(written):
        raise UsageError(f"the date {written!r} is not of plain characters")
    values = {"node.id": str(node_id)}
    if properties.directory_id is not None:
        values["directory.id"] = format_uuid(properties.directory_id)
    values |= {"version": str(_NEWEST), "cluster.id": cluster_id}
    lines = ["#", f"#{written}", *(f"{key}={_escape(value)}" for key, value in values.items())]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def decode_meta_properties(data: bytes) -> MetaProperties:
    """What the file says; CorruptionError where it lacks what its version requires, or tells nonsense."""
    try:
        values = {each.name: each.value for each in parse_properties(data)}
    except PropertiesError as error:
        raise _wrong(str(error)) from None
    version = _integer(values, "version")
    version = 0 if version is None else version
    if version not in _VERSIONS:
        raise _wrong(f"version is {version}; known are {_VERSIONS[0]} and {_VERSIONS[1]}")
    node_key = "node.id" if version else "broker.id"
    cluster_id, node_id = values.get("cluster.id"), _integer(values, node_key)
    if version and (cluster_id is None or node_id is None):
        raise _wrong(f"{'cluster.id' if cluster_id is None else node_key} is missing")
    if cluster_id is not None and not _PRINTABLE.fullmatch(cluster_id):
        raise _wrong("cluster.id is not of plain characters")
    directory_id = None
    if "directory.id" in values:
        directory_id = parse_uuid(values["directory.id"])
        if directory_id is None or is_reserved(directory_id):
            raise _wrong("directory.id is not an id of 22 characters of base64")
    return MetaProperties(cluster_id, node_id, directory_id, version)


def _escape(text: str) -> str:
    return _MUST_ESCAPE.sub(r"\\\g<0>", text)


def _integer(values: dict[str, str], key: str) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise _wrong(f"{key} is not a number of 32 bits")
    return int(text)


def _wrong(detail: str) -> CorruptionError:
    return CorruptionError("meta_properties", detail)
