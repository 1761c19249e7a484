"""Why bytes are wrong, in words: a sentence for people and what to do next, for every reason."""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptionError, LimitExceededError
from stratalog.records.layout import Reason

__all__ = ["RESTORE", "corruption", "describe", "reason_name"]

#: What to do about a segment of which a part cannot be read.
RESTORE: Final = "restore this segment from a replica or a backup, or read up to this position"
_TORN: Final = "a writer crashed here or is still writing; everything before it is intact"

_TEXT: Final[dict[Reason, tuple[str, str]]] = {
    Reason.NONE: ("nothing is wrong", ""),
    Reason.SHORT_TAIL: ("the last batch is incomplete", _TORN),
    Reason.ZERO_TAIL: ("only zeros follow: preallocated space", _TORN),
    Reason.SIZE_TOO_SMALL: ("the batch size is below the minimum", RESTORE),
    Reason.SIZE_TOO_LARGE: (
        "the batch size is above the configured maximum",
        "raise max_batch_bytes if you trust this batch",
    ),
    Reason.UNKNOWN_MAGIC: (
        "the magic byte is not that of a known format",
        "check that this is a log file; " + RESTORE,
    ),
    Reason.CRC_MISMATCH: ("the bytes do not match their CRC", RESTORE),
    Reason.OFFSET_RANGE: ("an offset is negative or beyond 64 bits", RESTORE),
    Reason.LEADER_EPOCH_RANGE: ("the leader epoch is below -1", RESTORE),
    Reason.OFFSET_ORDER: ("an offset is not above the one before it", RESTORE),
    Reason.OFFSET_GAP: ("offsets are missing before this batch", RESTORE),
    Reason.UNKNOWN_CODEC: ("the compression codec is not one of this format", RESTORE),
    Reason.LAST_OFFSET_DELTA_RANGE: ("the last offset delta is negative", RESTORE),
    Reason.RECORD_COUNT_RANGE: ("the record count is impossible for this batch", RESTORE),
    Reason.RECORD_LENGTH: ("a record is longer than what holds it", RESTORE),
    Reason.VARINT: ("a variable-length number does not end", RESTORE),
    Reason.FIELD_LENGTH: ("a key or value is longer than what holds it", RESTORE),
    Reason.RECORD_TRAILING_BYTES: ("a record is shorter than its length says", RESTORE),
    Reason.BATCH_TRAILING_BYTES: ("bytes remain after the last record of a batch", RESTORE),
    Reason.OFFSET_DELTA_RANGE: ("a record's offset lies outside its batch", RESTORE),
    Reason.HEADER_COUNT: ("the number of record headers is impossible", RESTORE),
    Reason.HEADER_KEY_NULL: ("a record header has no key", RESTORE),
    Reason.COMPRESSED_DATA: ("the compressed records cannot be decompressed", RESTORE),
    Reason.DECOMPRESSED_TOO_LARGE: (
        "the records would decompress to more than the limit",
        "raise max_decompressed_bytes if you trust this batch",
    ),
    Reason.NESTED_COMPRESSION: ("a compressed message holds another", RESTORE),
    Reason.EMPTY_WRAPPER: ("a compressed message holds nothing", RESTORE),
    Reason.WRAPPER_OFFSET: ("a compressed message's offset does not fit its contents", RESTORE),
}

assert set(_TEXT) == set(Reason)


def reason_name(reason: Reason | int) -> str:
    """The stable name that programs see, for example ``crc_mismatch``."""
    return Reason(reason).name.lower()


def describe(reason: Reason | int) -> str:
    """The sentence that people see."""
    return _TEXT[Reason(reason)][0]


def corruption(
    reason: Reason | int, position: int, *, detail: str | None = None
) -> CorruptionError:
    """The error for bytes that are wrong at ``position``."""
    reason = Reason(reason)
    sentence, advice = _TEXT[reason]
    limit = reason in (Reason.DECOMPRESSED_TOO_LARGE, Reason.SIZE_TOO_LARGE)
    kind = LimitExceededError if limit else CorruptionError
    return kind(reason_name(reason), detail or sentence, position=position, advice=advice or None)
