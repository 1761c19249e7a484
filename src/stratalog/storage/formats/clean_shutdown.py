"""``.kafka_cleanshutdown``: that it exists says that everything was synced. Its text says which run of the
broker did it, and hardly anyone asks."""

from __future__ import annotations

import json
from typing import Final

from stratalog.records.layout import INT64_MAX

__all__ = ["NO_BROKER_EPOCH", "decode_clean_shutdown", "encode_clean_shutdown"]

NO_BROKER_EPOCH: Final = -1

_SIZE_MAX: Final = 4096  # a few fields; whatever is larger was not written by a broker


def encode_clean_shutdown(broker_epoch: int = NO_BROKER_EPOCH) -> bytes:
    """The file's text, as a broker writes it."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode("ascii")


def decode_clean_shutdown(data: bytes) -> int:
    """The epoch of the broker that shut down. -1 where it is not told: brokers before 3.8 leave the file
    empty, and unreadable text is as good."""
    if len(data) > _SIZE_MAX:
        return NO_BROKER_EPOCH
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return NO_BROKER_EPOCH
    broker_epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if type(broker_epoch) is not int or not 0 <= broker_epoch <= INT64_MAX:
        return NO_BROKER_EPOCH
    return broker_epoch
