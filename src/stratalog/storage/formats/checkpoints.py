"""The text of checkpoint files: a version, a count, and so many lines of words.

    0                    the version, always this one
    2                    how many lines follow
    orders 0 1047        topic, partition, offset
    orders 1 993

``leader-epoch-checkpoint`` has the same frame with other words in it, so the frame is here for both. Such a
file is replaced as a whole or not at all; what still does not fit is damage. An empty file is an empty
checkpoint (Kafka creates it so), and so is one that has its version only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, UsageError
from stratalog.records.layout import INT32_MAX, INT64_MAX, INT64_MIN
from stratalog.storage.names import check_topic
from stratalog.types import TopicPartition

__all__ = [
    "CheckpointLine",
    "decode_lines",
    "decode_offsets",
    "encode_lines",
    "encode_offsets",
]

_VERSION: Final = 0
_HEADER_LINES: Final = 2
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,19}")  # int() alone would take 1_000, too


class CheckpointLine(NamedTuple):
    """The words of one line, and its number for who has to find it."""

    number: int
    words: list[bytes]

    def integer(self, at: int, smallest: int, largest: int) -> int:
        """Word ``at`` as a number within these limits; CorruptionError where it is not one."""
        word = self.words[at]
        value = int(word) if _INTEGER.fullmatch(word) else None
        if value is None or not smallest <= value <= largest:
            raise self.wrong(f"{_shown(word)} is not a number from {smallest} to {largest}")
        return value

    def wrong(self, detail: str) -> CorruptionError:
        return _wrong("checkpoint_line", self.number, detail)


def encode_lines(lines: Iterable[str]) -> bytes:
    """A checkpoint of these lines; each must be of plain words."""
    listed = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(listed), *listed)).encode("ascii")


def decode_lines(data: bytes, word_count: int) -> list[CheckpointLine]:
    """The lines of a checkpoint, each of ``word_count`` words; CorruptionError where it is none."""
    # Of bytes, these split exactly where Java does: other line ends and blanks exist in str only.
    lines = data.splitlines()
    if not lines:
        return []
    if _header_number(lines[0]) != _VERSION:
        raise _wrong("checkpoint_version", 1, f"the version is {_shown(lines[0])}, not {_VERSION}")
    if len(lines) == 1:
        return []
    if not data.endswith((b"\n", b"\r")):
        # Kafka takes it. But every writer ends every line, and half a number is a wrong number.
        raise _wrong("checkpoint_cut_off", len(lines), "the last line has no end")
    found = len(lines) - _HEADER_LINES
    if _header_number(lines[1]) != found:
        raise _wrong(
            "checkpoint_count", 2, f"{_shown(lines[1])} lines are declared, {found} are present"
        )
    entries = []
    for number, line in enumerate(lines[_HEADER_LINES:], _HEADER_LINES + 1):
        entry = CheckpointLine(number, line.split())
        if len(entry.words) != word_count:
            raise entry.wrong(f"{len(entry.words)} words, not {word_count}")
        entries.append(entry)
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset for every partition: recovery points, log starts, high watermarks, cleaned offsets."""
    return encode_lines(
        _offset_line(topic_partition, offset) for topic_partition, offset in offsets.items()
    )


def _offset_line(topic_partition: TopicPartition, offset: int) -> str:
    if not 0 <= topic_partition.partition <= INT32_MAX or not INT64_MIN <= offset <= INT64_MAX:
        raise UsageError(f"{topic_partition} at {offset} does not fit into a checkpoint")
    return f"{check_topic(topic_partition.topic)} {topic_partition.partition} {offset}"


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offset of every partition, in the file's order. It may lie anywhere: also below zero, or
    beyond a log that was cut since. Who uses it knows the log, and holds it within."""
    offsets: dict[TopicPartition, int] = {}
    for line in decode_lines(data, 3):
        try:
            topic = check_topic(line.words[0].decode("ascii"))
        except ValueError:  # UsageError and UnicodeDecodeError both are one
            raise line.wrong(f"{_shown(line.words[0])} is not a topic") from None
        topic_partition = TopicPartition(topic, line.integer(1, 0, INT32_MAX))
        if topic_partition in offsets:
            # Kafka takes the later one; which of them is true nobody knows.
            raise line.wrong(f"{topic_partition} is there a second time")
        offsets[topic_partition] = line.integer(2, INT64_MIN, INT64_MAX)
    return offsets


def _header_number(line: bytes) -> int | None:
    return int(line) if _INTEGER.fullmatch(line) else None


def _shown(word: bytes) -> str:
    text = word[:40].decode("ascii", "backslashreplace")
    return repr(text if len(word) <= 40 else f"{text}…")


def _wrong(reason: str, line: int, detail: str) -> CorruptionError:
    return CorruptionError(reason, f"line {line}: {detail}")
