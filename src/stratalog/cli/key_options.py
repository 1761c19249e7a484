"""The options that name keys: one by one, in files, or by their hashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any, Final

import click

from stratalog.cli.reporter import Reporter
from stratalog.errors import UsageError
from stratalog.rewrite.erase.keys import KeyFormat, KeySet, parse_key, read_key_file, read_keys
from stratalog.storage.files.filesystem import OsFileSystem

__all__ = ["absent_keys", "keys_in_files"]

_FORMATS: Final = tuple(each.value for each in KeyFormat if each is not KeyFormat.MD5)


def keys_in_files(command: Any) -> Any:
    """Add the options for keys. The command gets them as one value, ``keys``, a KeySet."""

    @wraps(command)
    def called(
        *args: Any,
        one_by_one: tuple[str, ...],
        key_files: tuple[str, ...],
        hash_files: tuple[str, ...],
        key_format: str,
        **options: Any,
    ) -> Any:
        keys = KeySet()
        for key in one_by_one:
            parse_key(keys, os.fsencode(key), KeyFormat(key_format))
        _read(keys, key_files, KeyFormat(key_format))
        _read(keys, hash_files, KeyFormat.MD5)
        return command(*args, keys=keys, **options)

    wrapped: Any = called
    for option in (_FORMAT, _HASHES, _FILES, _KEY):
        wrapped = option(wrapped)
    return wrapped


def absent_keys(command: Any) -> Any:
    """Add the options for keys that must be absent. The command gets them as one value, ``absent``, a KeySet,
    which is empty if there are none."""

    @wraps(command)
    def called(
        *args: Any,
        absent_files: tuple[str, ...],
        absent_hash_files: tuple[str, ...],
        key_format: str,
        **options: Any,
    ) -> Any:
        keys = KeySet()
        _read(keys, absent_files, KeyFormat(key_format))
        _read(keys, absent_hash_files, KeyFormat.MD5)
        return command(*args, absent=keys, **options)

    return _ABSENT(_ABSENT_HASHES(_FORMAT(called)))


def _read(keys: KeySet, paths: Sequence[str], form: KeyFormat) -> None:
    files = OsFileSystem()
    reporter = click.get_current_context().find_object(Reporter)
    for path in paths:
        name = "standard input" if path == "-" else path
        if path == "-":
            count = read_keys(keys, name, _stdin_parts(), form)
        else:
            count = read_key_file(keys, files, path, form)
        if reporter is not None:
            reporter.note(f"{name}: {count} {'key' if count == 1 else 'different keys'}")


def _stdin_parts() -> Iterator[bytes]:
    if sys.stdin is None:
        raise UsageError("standard input is closed: name a file instead of -")
    while part := sys.stdin.buffer.read(1 << 20):
        yield part


_KEY: Final = click.option(
    "--key", "one_by_one", multiple=True, metavar="KEY", help="A key. May be repeated."
)
_FILES: Final = click.option(
    "--keys",
    "key_files",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="File with one key per line; - is standard input. May be repeated.",
)
_HASHES: Final = click.option(
    "--key-hashes",
    "hash_files",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="File with the MD5 of one key per line, in hexadecimal digits. May be repeated.",
)
_ABSENT: Final = click.option(
    "--absent",
    "absent_files",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Prove that the keys in this file, one per line, are in no file. - is standard input.",
)
_ABSENT_HASHES: Final = click.option(
    "--absent-hashes",
    "absent_hash_files",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="The same for keys that are given by their MD5, in hexadecimal digits.",
)
_FORMAT: Final = click.option(
    "--key-format",
    type=click.Choice(_FORMATS),
    default=KeyFormat.TEXT.value,
    show_default=True,
    help="How keys are spelled.",
)
