"""Says in one line that a cluster's master does not answer. Spark tries for a minute, stops its context, and
reports that of the context.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stratalog.errors import StorageError, UsageError

__all__ = ["check_master", "naming_master", "standalone_addresses"]

_STANDALONE: Final = "spark://"
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:,\[\]]+)):([0-9]{1,5})")
_PORT_MAX: Final = 65535
_PATIENCE_SECONDS: Final = 5.0
_STOPPED: Final = "stopped SparkContext"


def standalone_addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports in ``spark://one:7077,two:7077``; none of a master of another kind. UsageError
    where one has no port."""
    if not master.startswith(_STANDALONE):
        return []
    found = []
    for part in master.removeprefix(_STANDALONE).split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None or int(match[3]) > _PORT_MAX:
            raise UsageError(f"master {master!r}: write spark://host:7077")
        found.append((match[1] or match[2], int(match[3])))
    return found


def check_master(master: str) -> None:
    """StorageError where nothing listens at any address of a standalone master. Asked before Java starts."""
    reason = ""
    addresses = standalone_addresses(master)
    for address in addresses:
        try:
            socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        else:
            return
    if addresses:
        raise StorageError(f"the Spark master does not respond: {reason}", path=master)


@contextmanager
def naming_master(master: str | None) -> Iterator[None]:
    """What Spark raises within because it gave its master up comes out with the master's name."""
    try:
        yield
    except Exception as error:
        if master is None or _STOPPED not in str(error):
            raise
        raise StorageError(
            "the Spark master does not accept this application: its log says why", path=master
        ) from None
