"""Kafka's ids of topics and directories: sixteen bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from typing import Final

__all__ = ["RESERVED_BELOW", "UUID_SIZE", "format_uuid", "is_reserved", "parse_uuid", "random_uuid"]

UUID_SIZE: Final = 16
#: As numbers, the ids below this one mean something: 0 is "none", 1 the metadata topic or "unassigned".
RESERVED_BELOW: Final = 100

_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")


def format_uuid(uuid: bytes) -> str:
    """The 22 characters."""
    assert len(uuid) == UUID_SIZE, uuid
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def parse_uuid(text: str) -> bytes | None:
    """The sixteen bytes; None where the text is not that of an id. Padding may stand, as in Java."""
    if not _TEXT.fullmatch(text):
        return None
    return base64.urlsafe_b64decode(text[:22] + "==")


def is_reserved(uuid: bytes) -> bool:
    """Whether the id is one of those that name no topic or directory of ours."""
    return int.from_bytes(uuid, "big") < RESERVED_BELOW


def random_uuid(entropy: Callable[[int], bytes] = os.urandom) -> bytes:
    """A new id (UUID version 4). Never a reserved one: those lack the version's bits.

    Never one whose text starts with ``-`` either: on a command line it would look like an option.
    """
    while True:
        number = bytearray(entropy(UUID_SIZE))
        number[6] = number[6] & 0x0F | 0x40
        number[8] = number[8] & 0x3F | 0x80
        uuid = bytes(number)
        if not format_uuid(uuid).startswith("-"):
            return uuid
