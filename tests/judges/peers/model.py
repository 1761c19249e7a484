"""What every peer speaks: one record tuple, one case, one way to say "I cannot"."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Magic = Literal[0, 1, 2]

CODECS: tuple[Codec, ...] = get_args(Codec)
CODEC_NUMBERS: dict[Codec, int] = {codec: number for number, codec in enumerate(CODECS)}
MAGICS: tuple[Magic, ...] = (0, 1, 2)

NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Headers = tuple[tuple[str, bytes | None], ...]


class PeerError(Exception):
    """The peer found the bytes wrong, or did not do its work in time."""


class PeerRecord(NamedTuple):
    """One record as a peer reads or is given it. Magic 0: timestamp and timestamp_type are -1."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Case:
    """Records that make one batch (magic 0 and 1: one message set), and how it is written."""

    magic: Magic
    codec: Codec
    records: tuple[PeerRecord, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def has_offset_gaps(self) -> bool:
        return self.records[-1].offset - self.base_offset != len(self.records) - 1

    @property
    def has_wrapping_deltas(self) -> bool:
        """Some timestamp is further from the first than an int64 says; Kafka wraps around."""
        first = self.records[0].timestamp
        return any(
            not INT64_MIN <= record.timestamp - first <= INT64_MAX for record in self.records
        )


def split_entries(record_set: bytes) -> Iterator[bytes]:
    """The batches, messages and wrappers of a record set, one after another."""
    position = 0
    while position < len(record_set):
        (length,) = struct.unpack_from(">i", record_set, position + 8)
        end = position + 12 + length
        if length < 14 or end > len(record_set):
            raise PeerError(f"no whole entry at {position}")
        yield record_set[position:end]
        position = end


def magic_of(entry: bytes | bytearray) -> int:
    return entry[16]


def codec_of(entry: bytes | bytearray) -> Codec:
    """The codec that the attributes name; peers may store uncompressed what does not shrink."""
    attributes = entry[22] if magic_of(entry) == 2 else entry[17]
    return CODECS[attributes & 7]


def place_at(record_set: bytes, base_offset: int, count: int) -> bytes:
    """What a broker does with a client's record set: its offsets begin at `base_offset`.

    Offsets are outside of every CRC. The set is one batch, one wrapper around `count` messages
    with relative offsets (magic 1), or `count` plain messages.
    """
    entries = [bytearray(entry) for entry in split_entries(record_set)]
    for index, entry in enumerate(entries):
        is_wrapper = magic_of(entry) < 2 and codec_of(entry) != "none"
        if is_wrapper and magic_of(entry) == 0 and base_offset != 0:
            raise PeerError("a magic 0 wrapper holds absolute offsets: it cannot be moved")
        delta = count - 1 if is_wrapper else index
        struct.pack_into(">q", entry, 0, base_offset + delta)
    return b"".join(entries)


def renumbered(records: Sequence[PeerRecord], base_offset: int) -> list[PeerRecord]:
    """The records with offsets from `base_offset` on, without gaps."""
    return [record._replace(offset=base_offset + i) for i, record in enumerate(records)]


def peer_records(batch: Iterable[Any]) -> Iterator[PeerRecord]:
    """From the record objects that kafka-python and aiokafka have in common."""
    for record in batch:
        yield PeerRecord(
            record.offset,
            -1 if record.timestamp is None else record.timestamp,
            -1 if record.timestamp_type is None else record.timestamp_type,
            record.key,
            record.value,
            tuple(record.headers),
        )
