"""What a producer's batch must be: offsets, records, keys, times. A refusal names the records at fault."""

from __future__ import annotations

from typing import Final

from stratalog.errors import InvalidRecordError, InvalidTimestampError
from stratalog.records import kernel
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    CONTROL_MASK,
    Row,
)
from stratalog.records.reasons import describe
from stratalog.storage.admission.headers import payload_of, records_of
from stratalog.storage.admission.rules import AppendRules
from stratalog.types import NO_TIMESTAMP, Bytes

__all__ = ["check_client", "check_records", "says_append_time"]

_ATTRIBUTES: Final = int(Row.ATTRIBUTES)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_BASE_TIMESTAMP: Final = int(Row.BASE_TIMESTAMP)
_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)
_RECORD_COUNT: Final = int(Row.RECORD_COUNT)
_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_BASE_SEQUENCE: Final = int(Row.BASE_SEQUENCE)
_PAYLOAD_POSITION: Final = int(Row.PAYLOAD_POSITION)
_PAYLOAD_SIZE: Final = int(Row.PAYLOAD_SIZE)


def check_client(rows: memoryview, at: int, expected: int) -> None:
    base_offset, last_offset = rows[at + _BASE_OFFSET], rows[at + _LAST_OFFSET]
    count = rows[at + _RECORD_COUNT]
    if base_offset not in (0, expected):
        raise InvalidRecordError(
            f"a producer's batch starts at offset {base_offset}: it counts from 0, the log gives offsets"
        )
    if count <= 0 or last_offset - base_offset + 1 != count:
        raise InvalidRecordError(
            f"a producer's batch of {count} records with last offset delta {last_offset - base_offset}"
        )
    if rows[at + _ATTRIBUTES] & CONTROL_MASK:
        raise InvalidRecordError("a producer may not write control batches")
    if rows[at + _PRODUCER_ID] >= 0 and rows[at + _BASE_SEQUENCE] < 0:
        raise InvalidRecordError(
            f"producer {rows[at + _PRODUCER_ID]} numbers its batches from {rows[at + _BASE_SEQUENCE]}"
        )


def check_records(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> tuple[int, bool]:
    """The batch's true largest timestamp, and whether its records are not numbered 0, 1, 2…"""
    if rows[at + _ATTRIBUTES] & CODEC_MASK:
        payload = payload_of(data, rows, at)
        start, end = 0, len(payload)
    else:
        payload = data  # type: ignore[assignment]  # any buffer does
        start = rows[at + _PAYLOAD_POSITION]
        end = start + rows[at + _PAYLOAD_SIZE]
    reason, _, min_timestamp, max_timestamp, _, gap_row, null_key_row = kernel.check_records(
        payload, start, end, rows[at + _RECORD_COUNT], rows[at + _BASE_TIMESTAMP]
    )
    if reason:
        raise InvalidRecordError(f"invalid batch: {describe(reason)}")
    is_stamped = rows[at + _ATTRIBUTES] & APPEND_TIME_MASK
    if is_stamped:
        if rules.append_time:
            raise says_append_time(rows[at + _RECORD_COUNT])
        # As in Kafka: the header then tells the time of every record, whatever stands in the records.
        min_timestamp = rows[at + _MAX_TIMESTAMP]
        max_timestamp = max(min_timestamp, NO_TIMESTAMP)
    if rules.needs_key and null_key_row >= 0 and not rows[at + _ATTRIBUTES] & CONTROL_MASK:
        raise _refused(data, rows, at, rules, now_ms)
    if not rules.append_time and (
        max_timestamp - now_ms > rules.after_max_ms
        or now_ms - min_timestamp > rules.before_max_ms
        or (is_stamped and min_timestamp == NO_TIMESTAMP)
    ):
        errors = _timestamp_errors(data, rows, at, rules, now_ms)
        if errors:
            raise _refused(data, rows, at, rules, now_ms)
    return max_timestamp, gap_row >= 0


def says_append_time(count: int) -> InvalidTimestampError:
    what = "says LogAppendTime: only the log may say that"
    errors = [(row, what) for row in range(count)]
    return InvalidTimestampError(f"a producer's batch {what}", record_errors=errors)


def _timestamp_errors(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> list[tuple[int, str]]:
    """Record by record, and by the timestamp that a reader of the batch would see."""
    errors = []
    is_stamped = rows[at + _ATTRIBUTES] & APPEND_TIME_MASK
    for row, record in enumerate(records_of(data, rows, at)):
        timestamp = record.timestamp
        if timestamp == NO_TIMESTAMP:
            if is_stamped:
                errors.append((row, "says LogAppendTime, and has no time"))
        elif _java_difference(now_ms, timestamp) > rules.before_max_ms:
            errors.append(
                (row, f"is of {timestamp}, more than message.timestamp.before.max.ms before now")
            )
        elif _java_difference(timestamp, now_ms) > rules.after_max_ms:
            errors.append(
                (row, f"is of {timestamp}, more than message.timestamp.after.max.ms after now")
            )
    return errors


def _java_difference(left: int, right: int) -> int:
    """In 64 bits, as a broker computes it: the earliest of all times is one of the far future."""
    return (left - right + 2**63) % 2**64 - 2**63


def _refused(
    data: Bytes, rows: memoryview, at: int, rules: AppendRules, now_ms: int
) -> InvalidRecordError:
    """The error that names every record at fault; the times win, as in Kafka."""
    late = [] if rules.append_time else _timestamp_errors(data, rows, at, rules, now_ms)
    keyless = []
    if rules.needs_key:
        keyless = [
            (row, "has no key, and the topic is compacted")
            for row, record in enumerate(records_of(data, rows, at))
            if record.key is None
        ]
    errors = sorted(late + keyless)
    row, what = errors[0]
    kind = InvalidTimestampError if late else InvalidRecordError
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return kind(f"record {row} of the batch {what}{more}", record_errors=errors)
