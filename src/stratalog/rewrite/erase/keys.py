"""Keys that are to be erased, or proved absent: given one by one, or in files with one per line.

Only the MD5 of a key is kept, as in Kafka's cleaner, so that a set takes 48 bytes for each key, however long
the keys are. Two keys of one MD5 would be erased together; no such keys are known but those that were made
to collide.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from hashlib import md5
from typing import Final

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.storage.files.filesystem import FileSystem, ReadableFile

__all__ = ["KeyFormat", "KeySet", "parse_key", "read_key_file", "read_keys"]

_SLOT_BYTES: Final = 24
_LOAD_FACTOR: Final = 0.5
_DIGEST_BYTES: Final = 16
_READ_BYTES: Final = 1 << 20
#: What a line of a key file may have; a key that is longer is given by its hash.
_LINE_BYTES_MAX: Final = 16 << 20


class KeyFormat(StrEnum):
    """How a key file spells keys: the bytes themselves, or in base64, hexadecimal digits, or the hexadecimal
    digits of their MD5."""

    TEXT = "text"
    BASE64 = "base64"
    HEX = "hex"
    MD5 = "md5"


class KeySet:
    """Some keys, by their MD5. Add keys first; ``map`` then has them as the kernel looks them up."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    @classmethod
    def of(cls, keys: Iterable[bytes | str]) -> KeySet:
        """Return a set of these keys; text stands for its UTF-8."""
        made = cls()
        if isinstance(keys, bytes | str):
            raise UsageError(f"keys are given as a list, not as {keys!r}")
        for key in keys:
            if not isinstance(key, bytes | str):
                raise UsageError(f"a key is bytes or text, not {key!r}")
            try:
                made.add(key.encode() if isinstance(key, str) else key)
            except UnicodeEncodeError:
                raise UsageError(f"the key {key!r} has no UTF-8: give it as bytes") from None
        return made

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, key: bytes) -> None:
        """Add a key."""
        self._digests.add(md5(key, usedforsecurity=False).digest())

    def add_digest(self, digest: bytes) -> None:
        """Add a key by its MD5."""
        if len(digest) != _DIGEST_BYTES:
            raise UsageError(f"an MD5 has {_DIGEST_BYTES} bytes, not {len(digest)}")
        self._digests.add(digest)

    def update(self, other: KeySet) -> None:
        """Add the keys of another set."""
        self._digests |= other._digests

    def map(self) -> kernel.OffsetMap:
        """Return the keys as the kernel takes them: with an offset, which means nothing."""
        slots = int(len(self._digests) / _LOAD_FACTOR) + 2
        found = kernel.OffsetMap(slots * _SLOT_BYTES, 1.0)
        for digest in self._digests:
            found.put_digest(digest, 0)
        return found


def parse_key(keys: KeySet, text: bytes, form: KeyFormat = KeyFormat.TEXT) -> None:
    """Add a key that is spelled in a format. UsageError if it is not."""
    try:
        _ADD[form](keys, text)
    except ValueError:
        shown = text[:40].decode("utf-8", "replace")
        raise UsageError(f"the key {shown!r} is not {_ALLOWED[form]}") from None


def read_key_file(
    keys: KeySet, file_system: FileSystem, path: str, form: KeyFormat = KeyFormat.TEXT
) -> int:
    """Add the keys of a file; see ``read_keys``."""
    file = file_system.open_readable(path)
    try:
        return read_keys(keys, path, _parts(file), form)
    finally:
        file.close()


def read_keys(
    keys: KeySet, path: str, parts: Iterable[bytes], form: KeyFormat = KeyFormat.TEXT
) -> int:
    """Add the keys of a text that comes in parts, and return how many different ones there are. UsageError
    names the first line that is not a key, and the ``path``; then none is added.

    A line ends with a line feed, or a carriage return and a line feed, which do not belong to the key. An
    empty line is an error: an empty key is given by itself, and not in a file. So are byte order marks, and
    carriage returns and zero bytes within a text: they come from other encodings and line ends, and a search
    for such keys would find nothing.
    """
    add = _ADD[form]
    taken = KeySet()
    for number, line in enumerate(_lines(parts, path), 1):
        problem = _problem(line, number, form)
        if problem is not None:
            raise UsageError(f"{path}: line {number} {problem}")
        try:
            add(taken, line)
        except ValueError:
            shown = line[:40].decode("utf-8", "replace")
            raise UsageError(f"{path}: line {number} is not {_ALLOWED[form]}: {shown!r}") from None
    if not taken:
        raise UsageError(f"{path} holds no key")
    keys.update(taken)
    return len(taken)


#: What text in another encoding begins with.
_MARKS: Final = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def _problem(line: bytes, number: int, form: KeyFormat) -> str | None:
    """Return why a line cannot be meant as it is, if so."""
    if not line:
        return "is empty: remove it, or write a key into it"
    for mark, encoding in _MARKS.items():
        if number == 1 and line.startswith(mark):
            return (
                f"begins with the byte order mark of {encoding}: save the file as UTF-8 without a mark; if a "
                "key begins with these bytes, give keys in hex"
            )
    if form is KeyFormat.TEXT and b"\0" in line:
        return "has a zero byte: save the file as UTF-8, or give keys in hex"
    if form is KeyFormat.TEXT and b"\r" in line:
        return (
            "has a carriage return within: end lines with a line feed; if it belongs to the key, give keys "
            "in hex"
        )
    return None


def _add_base64(keys: KeySet, line: bytes) -> None:
    keys.add(binascii.a2b_base64(line, strict_mode=True))


def _add_hex(keys: KeySet, line: bytes) -> None:
    keys.add(binascii.unhexlify(line))


def _add_md5(keys: KeySet, line: bytes) -> None:
    digest = binascii.unhexlify(line)
    if len(digest) != _DIGEST_BYTES:
        raise ValueError(len(digest))
    keys.add_digest(digest)


_ADD: Final[dict[KeyFormat, Callable[[KeySet, bytes], None]]] = {
    KeyFormat.TEXT: KeySet.add,
    KeyFormat.BASE64: _add_base64,
    KeyFormat.HEX: _add_hex,
    KeyFormat.MD5: _add_md5,
}
_ALLOWED: Final = {
    KeyFormat.TEXT: "text",
    KeyFormat.BASE64: "base64",
    KeyFormat.HEX: "an even number of hexadecimal digits",
    KeyFormat.MD5: "an MD5 of 32 hexadecimal digits",
}


def _parts(file: ReadableFile) -> Iterator[bytes]:
    position = 0
    while data := file.read(position, _READ_BYTES):
        position += len(data)
        yield data


def _lines(parts: Iterable[bytes], path: str) -> Iterator[bytes]:
    """Yield the lines of a text without their ends; the last one also if it has no end."""
    rest = b""
    for data in parts:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > _LINE_BYTES_MAX:
            raise UsageError(
                f"{path}: a line is longer than {_LINE_BYTES_MAX} bytes: this is not a key file"
            )
    if rest:
        yield rest.removesuffix(b"\r")
