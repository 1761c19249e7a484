"""Logs in an object store, as a FileSystem that is only read: S3 and what speaks like it, by pyarrow.

A path in a store is written as one of this machine: ``s3://bucket/logs`` is ``/bucket/logs``. A request costs
the time of a megabyte, so that little reads are made larger; and where it was said what will be wanted
(``read_ahead``), that is fetched in large pieces, and nothing behind it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stratalog.errors import StorageError, UsageError
from stratalog.storage.files.filesystem import (
    DirEntry,
    FileIdentity,
    FileLock,
    FileStat,
    FileSystem,
    OsFileSystem,
    ReadableFile,
    WritableFile,
)

if TYPE_CHECKING:
    from pyarrow import fs as arrow_fs

__all__ = ["ObjectStore", "is_uri", "open_store"]

#: What is fetched at once where it is known to be wanted, and where it is not.
FETCH_BYTES: Final = 8 << 20
LOOK_BYTES: Final = 64 << 10

_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
_FLAGS: Final = {"true": True, "false": False}
_S3_TEXTS: Final = (
    "access_key", "secret_key", "session_token", "region", "endpoint_override", "scheme",
    "role_arn", "session_name", "external_id", "proxy_options",
)  # fmt: skip
_S3_NUMBERS: Final = ("connect_timeout", "request_timeout")
_S3_FLAGS: Final = ("anonymous", "force_virtual_addressing")


def is_uri(path: str) -> bool:
    """Whether a path names a store, and not a file of this machine."""
    return "://" in path


def open_store(
    uris: str | Iterable[str], options: Mapping[str, str] | None = None
) -> tuple[FileSystem, tuple[str, ...]]:
    """The store that these URIs are in, and their paths in it: ``s3://bucket/logs``, ``file:///logs``, and
    what else pyarrow knows. All of them are in one.

    ``options`` are for S3, in the words of ``pyarrow.fs.S3FileSystem``: access_key, secret_key, region,
    endpoint_override, scheme, anonymous and others; a URI may bring them along behind a ``?``, and the keys
    before the bucket, as pyarrow's do. Without keys it looks where Amazon's own tools do.
    """
    listed = (uris,) if isinstance(uris, str) else tuple(uris)
    parts = [urlsplit(uri) for uri in listed]
    shown = ", ".join(map(_without_secrets, parts))
    if not listed or not all(map(is_uri, listed)):
        raise UsageError(f"no URI such as s3://bucket/logs: {shown or 'nothing'}")
    schemes = {"s3" if part.scheme in _S3_SCHEMES else part.scheme for part in parts}
    if len(schemes) > 1:
        raise UsageError(f"these are in several stores, read one at a time: {shown}")
    (scheme,) = schemes
    if scheme == "s3":
        buckets = [_bucket(part) for part in parts]
        if not all(buckets):
            raise UsageError("an S3 URI names a bucket: s3://bucket/logs")
        paths = tuple(
            f"/{bucket}{part.path}".rstrip("/") for bucket, part in zip(buckets, parts, strict=True)
        )
        asked = {tuple(_asked(part).items()) for part in parts}
        if len(asked) > 1:
            raise UsageError("these URIs ask for different options: read them one at a time")
        return ObjectStore(_s3({**dict(asked.pop()), **(options or {})})), paths
    if options:
        raise UsageError(f"options of a store are for s3://, and not for {scheme}://")
    if scheme == "file":
        return OsFileSystem(), tuple(part.path for part in parts)
    return _other_store(listed)


def _bucket(part: SplitResult) -> str:
    return part.netloc.rpartition("@")[2]


def _asked(part: SplitResult) -> dict[str, str]:
    """The options that a URI brings along: keys before its bucket, others behind a ``?``."""
    keys = part.netloc.rpartition("@")[0].partition(":")
    named = zip(("access_key", "secret_key"), (keys[0], keys[2]), strict=True)
    return {name: unquote(key) for name, key in named if key} | dict(
        parse_qsl(part.query, keep_blank_values=True)
    )


def _without_secrets(part: SplitResult) -> str:
    return part._replace(netloc=_bucket(part), query="").geturl()


def _s3(options: Mapping[str, str]) -> arrow_fs.FileSystem:
    from pyarrow import fs

    known = (*_S3_TEXTS, *_S3_NUMBERS, *_S3_FLAGS)
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name in _S3_TEXTS:
            given[name] = value
        elif name in _S3_NUMBERS and value.replace(".", "", 1).isdecimal():
            given[name] = float(value)
        elif name in _S3_FLAGS and value.lower() in _FLAGS:
            given[name] = _FLAGS[value.lower()]
        elif name in known:
            kind = "true or false" if name in _S3_FLAGS else "a number"
            raise UsageError(f"{name} of a store is {kind}, not {value!r}")
        else:
            raise UsageError(f"no option {name!r} of a store: there are {', '.join(known)}")
    try:
        return fs.S3FileSystem(**given)
    except (OSError, ValueError) as error:
        raise UsageError(f"S3 cannot be reached with these options: {error}") from None


def _other_store(uris: tuple[str, ...]) -> tuple[FileSystem, tuple[str, ...]]:
    from pyarrow import fs

    try:
        found = [fs.FileSystem.from_uri(uri) for uri in uris]
    except (OSError, ValueError) as error:
        said = str(error)
        for uri in uris:
            said = said.replace(uri, _without_secrets(urlsplit(uri)))
        raise UsageError(f"this store cannot be opened: {said}") from None
    store = found[0][0]
    if any(other != store for other, _ in found):
        shown = ", ".join(_without_secrets(urlsplit(uri)) for uri in uris)
        raise UsageError(f"these are in several stores, read one at a time: {shown}")
    return ObjectStore(store), tuple("/" + path.strip("/") for _, path in found)


class ObjectStore:
    """A read-only :class:`~stratalog.storage.files.filesystem.FileSystem` over one of pyarrow's. It can
    be sent to another process."""

    def __init__(self, store: arrow_fs.FileSystem) -> None:
        self._store = store
        #: Bytes that were fetched, of all files together.
        self.bytes_fetched = 0

    def open_readable(self, path: str) -> ReadableFile:
        try:
            return _StoredFile(self, path, self._store.open_input_file(self._path(path)))
        except (OSError, ValueError) as error:
            raise _refused(error, path) from None

    def stat(self, path: str) -> FileStat | None:
        from pyarrow import fs

        try:
            found = self._store.get_file_info(self._path(path))
        except (OSError, ValueError) as error:
            raise _refused(error, path) from None
        if found.type == fs.FileType.NotFound:
            return None
        if found.type != fs.FileType.File:
            raise StorageError("not a regular file", path=path)
        return FileStat(found.size, (found.mtime_ns or 0) // 1_000_000)

    def list_dir(self, path: str) -> list[DirEntry]:
        from pyarrow import fs

        try:
            found = self._store.get_file_info(fs.FileSelector(self._path(path)))
        except (OSError, ValueError) as error:
            raise _refused(error, path) from None
        return [
            DirEntry(
                each.base_name,
                each.type == fs.FileType.File,
                each.type == fs.FileType.Directory,
            )
            for each in found
        ]

    def _path(self, path: str) -> str:
        is_rooted = self._store.type_name in ("hdfs", "local")
        return path if is_rooted else path.strip("/")

    # What would change something.

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:  # noqa: ARG002
        _read_only(path)

    def make_dir(self, path: str) -> None:
        _read_only(path)

    def remove_dir(self, path: str) -> None:
        _read_only(path)

    def rename(self, old: str, new: str) -> None:  # noqa: ARG002
        _read_only(old)

    def link(self, old: str, new: str) -> None:  # noqa: ARG002
        _read_only(new)

    def unlink(self, path: str) -> None:
        _read_only(path)

    def sync_dir(self, path: str) -> None:
        _read_only(path)

    def set_modified(self, path: str, modified_ms: int) -> None:  # noqa: ARG002
        _read_only(path)

    def free_bytes(self, path: str) -> int | None:  # noqa: ARG002
        return None

    def lock(self, path: str) -> FileLock:
        _read_only(path)


class _StoredFile:
    """One object, read in pieces. What was fetched last is kept, so that a look at a header and the batch
    behind it are one request."""

    def __init__(self, store: ObjectStore, path: str, file: Any) -> None:
        self.path = path
        self.identity: FileIdentity | None = None
        self._store = store
        self._file = file
        self._size: int = file.size()
        self._kept = b""
        self._kept_at = 0
        self._wanted = range(0)

    def size(self) -> int:
        return self._size

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self._fetched(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._fetched(position, size))

    def map(
        self,
        position: int,  # noqa: ARG002
        size: int,  # noqa: ARG002
        *,
        reads_all: bool = False,  # noqa: ARG002
    ) -> memoryview:
        raise StorageError("an object of a store cannot be mapped", path=self.path)

    def read_ahead(self, position: int, size: int) -> None:
        self._wanted = range(position, min(position + size, self._size))

    def forget(self, position: int, size: int) -> None:
        pass

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._file.close()
        self._kept = b""

    def _fetched(self, position: int, size: int) -> memoryview:
        """The bytes from ``position`` on; fewer only at the end of the object."""
        end = min(position + size, self._size)
        if position >= end:
            return memoryview(b"")
        kept_end = self._kept_at + len(self._kept)
        if not self._kept_at <= position <= kept_end:
            self._kept, self._kept_at, kept_end = b"", position, position
        if end > kept_end:
            more = self._get(kept_end, max(end, self._good_end(kept_end)))
            self._kept = self._kept[position - self._kept_at :] + more
            self._kept_at = position
        start = position - self._kept_at
        return memoryview(self._kept)[start : start + end - position]

    def _good_end(self, position: int) -> int:
        """How far a request from here on best goes."""
        if position in self._wanted:
            return min(position + FETCH_BYTES, self._wanted.stop)
        return min(position + LOOK_BYTES, self._size)

    def _get(self, position: int, end: int) -> bytes:
        try:
            data: bytes = self._file.read_at(end - position, position)
        except (OSError, ValueError) as error:
            raise _refused(error, self.path) from None
        self._store.bytes_fetched += len(data)
        return data


def _refused(error: Exception, path: str) -> StorageError:
    """The error with its number: pyarrow says it by the type of the error at times, and at times not."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    elif number is None and isinstance(error, NotADirectoryError):
        number = errno.ENOTDIR
    detail = os.strerror(number).lower() if number is not None else str(error)
    return StorageError(detail, path=path, errno=number)


def _read_only(path: str) -> NoReturn:
    raise StorageError(
        "an object store is only read: copy the folder to a disk to write to it",
        path=path,
        errno=errno.EROFS,
    )
