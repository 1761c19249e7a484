"""Snapshot files: ``<end offset>-<epoch>.checkpoint``, and ``bootstrap.checkpoint`` of the same form.

A control batch with the header and the voters, batches of metadata records, a control batch with the footer.
The end offset is the first that the snapshot does not contain. Kafka loads a snapshot that is cut off without
a word, and loses topics; here one that lacks its footer is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.metadata.batches import AnyRecord, control_batch, decode_region, metadata_batches
from stratalog.metadata.image import MetadataImage
from stratalog.metadata.records import KRaftRecord
from stratalog.records.control import ControlType
from stratalog.records.layout import Ending

__all__ = [
    "SnapshotId",
    "decode_snapshot",
    "encode_snapshot",
    "parse_snapshot_name",
    "snapshot_file_name",
]

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_ADVICE: Final = (
    "restore the file from a backup. If an older snapshot and the metadata log above it are there, the "
    "damaged file may be moved away instead"
)


class SnapshotId(NamedTuple):
    """What the name of a snapshot says, in the order in which Kafka compares them."""

    epoch: int
    end_offset: int


def snapshot_file_name(snapshot: SnapshotId) -> str:
    """Return the name of a snapshot's file."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Return what the name of a snapshot's file says; None if it is another file."""
    found = _NAME.fullmatch(name)
    return None if found is None else SnapshotId(int(found[2]), int(found[1]))


def encode_snapshot(image: MetadataImage, epoch: int, timestamp: int) -> bytes:
    """Return the content of a snapshot of an image."""
    head = KRaftRecord(ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": timestamp})
    controls = [head, *image.control_records()]
    out = bytearray(control_batch(controls, base_offset=0, epoch=epoch, timestamp=timestamp))
    records = list(image.records())
    at = len(controls)
    out += metadata_batches(records, base_offset=at, epoch=epoch, timestamp=timestamp, one=False)
    footer = [KRaftRecord(ControlType.SNAPSHOT_FOOTER, {})]
    out += control_batch(footer, base_offset=at + len(records), epoch=epoch, timestamp=timestamp)
    return bytes(out)


def decode_snapshot(data: bytes) -> list[AnyRecord]:
    """Return the records of a snapshot, without header and footer. CorruptionError if it is damaged, lacks
    either, or has records missing."""
    region = decode_region(data, base_offset=0)
    end = region.end
    if end.ending == Ending.CORRUPT:
        error = end.error
        assert error is not None
        raise CorruptionError(error.reason, error.detail, position=end.position, advice=_ADVICE)
    kinds = [each.type if isinstance(each, KRaftRecord) else None for each in region.records]
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER:
        raise _wrong("it does not begin with a header", 0)
    if end.ending != Ending.END or kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise _wrong("it is cut off: the footer is missing", end.position)
    inner = region.records[1:-1]
    if ControlType.SNAPSHOT_HEADER in kinds[1:] or ControlType.SNAPSHOT_FOOTER in kinds[:-1]:
        raise _wrong("it has more than one header or footer", 0)
    return inner


def _wrong(detail: str, position: int) -> CorruptionError:
    return CorruptionError("metadata_snapshot", detail, position=position, advice=_ADVICE)
