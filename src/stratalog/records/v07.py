"""The oldest format, Kafka 0.7: log entries whose offset is their byte position, and the framings in
which a broker of that time answered a fetch.

Reading a file of it goes through the decoder's ``decode_v07``; here is writing, and the framings. The
format is in docs/formats/v07.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import CorruptionError, InvalidRecordError, UsageError
from stratalog.records import kernel
from stratalog.records.compression import compress
from stratalog.records.layout import INT32_MAX, V07_LENGTH_MIN_V1, Codec

__all__ = [
    "MessageSetSend",
    "MultiMessageSetSend",
    "build_entries",
    "build_entry",
    "decode_message_set_send",
    "decode_multi_message_set_send",
    "encode_message_set_send",
    "encode_multi_message_set_send",
]

_ENTRY_V0: Final = struct.Struct(">ibI")
_ENTRY_V1: Final = struct.Struct(">ibBI")
_SEND: Final = struct.Struct(">ih")


def build_entry(payload: bytes, *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """One entry around ``payload``, which is compressed already where ``codec`` says so."""
    if magic not in (0, 1):
        raise UsageError(f"0.7 has magic 0 and 1, not {magic}")
    if codec not in (Codec.NONE, Codec.GZIP, Codec.SNAPPY) or (codec and magic == 0):
        raise UsageError("0.7 knows gzip and snappy, in magic 1 only")
    if len(payload) > INT32_MAX - V07_LENGTH_MIN_V1:
        raise InvalidRecordError("an entry holds at most 2 GiB")
    crc = kernel.crc32(payload)
    if magic == 0:
        return _ENTRY_V0.pack(5 + len(payload), 0, crc) + payload
    return _ENTRY_V1.pack(6 + len(payload), 1, codec, crc) + payload


def build_entries(
    payloads: Iterable[bytes],
    *,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    wrapper_bytes: int = 16384,
) -> bytes:
    """Entries of all ``payloads``: plain, or in wrappers of about ``wrapper_bytes`` before compression."""
    if codec == Codec.NONE:
        return b"".join(build_entry(payload, magic=magic) for payload in payloads)
    out = bytearray()
    inner = bytearray()
    for payload in payloads:
        entry = build_entry(payload, magic=magic)
        if inner and len(inner) + len(entry) > wrapper_bytes:
            out += build_entry(bytes(compress(codec, inner, level=level)), codec=codec)
            inner.clear()
        inner += entry
    if inner:
        out += build_entry(bytes(compress(codec, inner, level=level)), codec=codec)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class MessageSetSend:
    """The answer to a fetch: an error code and entries as they lie in the log."""

    error_code: int
    content: bytes


@dataclass(frozen=True, slots=True)
class MultiMessageSetSend:
    """The answer to a multi-fetch: an error code and one answer for each fetch."""

    error_code: int
    sends: tuple[MessageSetSend, ...]


def encode_message_set_send(content: bytes, error_code: int = 0) -> bytes:
    """int32 length (2 + content), int16 error code, content"""
    return _pack_send(error_code, len(content)) + content


def decode_message_set_send(data: Any) -> MessageSetSend:
    """The framing of exactly ``data``; CorruptionError where it is not that."""
    view = memoryview(data).cast("B")
    send, end = _take_send(view, 0)
    if end != len(view):
        raise _wrong_frame(f"{len(view) - end} bytes follow the answer", end)
    return send


def encode_multi_message_set_send(sends: Sequence[MessageSetSend], error_code: int = 0) -> bytes:
    """int32 length, int16 error code, then each answer in its own framing"""
    content = b"".join(encode_message_set_send(send.content, send.error_code) for send in sends)
    return _pack_send(error_code, len(content)) + content


def decode_multi_message_set_send(data: Any) -> MultiMessageSetSend:
    """The framing of exactly ``data``; CorruptionError where it is not that."""
    outer = decode_message_set_send(data)
    sends = []
    view = memoryview(outer.content)
    position = 0
    while position < len(view):
        send, position = _take_send(view, position)
        sends.append(send)
    return MultiMessageSetSend(outer.error_code, tuple(sends))


def _pack_send(error_code: int, size: int) -> bytes:
    if size > INT32_MAX - 2:
        raise InvalidRecordError("an answer holds at most 2 GiB")
    try:
        return _SEND.pack(size + 2, error_code)
    except struct.error:
        raise UsageError(f"an error code has 16 bits: {error_code} does not fit") from None


def _take_send(view: memoryview, position: int) -> tuple[MessageSetSend, int]:
    if len(view) - position < _SEND.size:
        raise _wrong_frame("a response is incomplete in its header", position)
    length, error_code = _SEND.unpack_from(view, position)
    end = position + 4 + length
    if length < 2 or end > len(view):
        raise _wrong_frame(f"an answer of {length} bytes does not fit what is there", position)
    return MessageSetSend(error_code, bytes(view[position + _SEND.size : end])), end


def _wrong_frame(detail: str, position: int) -> CorruptionError:
    return CorruptionError("wrong_frame", detail, position=position, advice="read the whole answer")
