"""Key files: what they may spell, and which line is wrong."""

from __future__ import annotations

from hashlib import md5
from pathlib import Path

import pytest

from stratalog.errors import StorageError, UsageError
from stratalog.rewrite.erase.keys import KeyFormat, KeySet, read_key_file, read_keys
from stratalog.storage.files.filesystem import OsFileSystem


def read(folder: Path, data: bytes, form: KeyFormat = KeyFormat.TEXT) -> KeySet:
    path = folder / "keys"
    path.write_bytes(data)
    keys = KeySet()
    read_key_file(keys, OsFileSystem(), str(path), form)
    return keys


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (KeyFormat.TEXT, b"a\nb c\n\xff\n"),
        (KeyFormat.TEXT, b"a\r\nb c\r\n\xff"),
        (KeyFormat.BASE64, b"YQ==\nYiBj\n/w=="),
        (KeyFormat.HEX, b"61\n622063\nFF\n"),
        (
            KeyFormat.MD5,
            b"\n".join(md5(each).hexdigest().encode() for each in (b"a", b"b c", b"\xff")),
        ),
    ],
)
def test_a_key_file_holds_its_keys(tmp_path: Path, form: KeyFormat, data: bytes) -> None:
    keys = read(tmp_path, data, form)
    assert len(keys) == 3
    found = keys.map()
    assert [found.get(each) for each in (b"a", b"b c", b"\xff")] == [0, 0, 0]
    assert [found.get(each) for each in (b"b", b"", b"A")] == [-1, -1, -1]


@pytest.mark.parametrize(
    ("form", "data", "detail"),
    [
        (KeyFormat.TEXT, b"", "holds no key"),
        (KeyFormat.TEXT, b"a\n\nb", "line 2 is empty"),
        (
            KeyFormat.TEXT,
            b"\xef\xbb\xbfsecret\r\n",
            "line 1 begins with the byte order mark of UTF-8",
        ),
        (KeyFormat.HEX, b"\xef\xbb\xbf61\n", "line 1 begins with the byte order mark of UTF-8"),
        (KeyFormat.TEXT, "secret\r\n".encode("utf-16"), "line 1 .* mark of UTF-16"),
        (KeyFormat.TEXT, "\ufeffsecret\n".encode("utf-16-be"), "line 1 .* mark of UTF-16"),
        (KeyFormat.TEXT, "secret\n".encode("utf-16-le"), "line 1 has a zero byte"),
        (KeyFormat.TEXT, b"secret\rother\r", "line 1 has a carriage return"),
        (KeyFormat.TEXT, b"a\nsecret\r\r\n", "line 2 has a carriage return"),
        (KeyFormat.BASE64, b"YQ==\nYQ=", "line 2 is not base64"),
        (KeyFormat.BASE64, b"Y Q==", "line 1 is not base64"),
        (KeyFormat.HEX, b"61\n6", "line 2 is not an even number of hexadecimal digits"),
        (KeyFormat.HEX, b"zz", "line 1"),
        (KeyFormat.MD5, b"61", "line 1 is not an MD5 of 32 hexadecimal digits"),
        (KeyFormat.MD5, b"g" * 32, "line 1"),
    ],
)
def test_a_malformed_key_file_names_its_line(
    tmp_path: Path, form: KeyFormat, data: bytes, detail: str
) -> None:
    with pytest.raises(UsageError, match=detail):
        read(tmp_path, data, form)


def test_a_missing_key_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_key_file(KeySet(), OsFileSystem(), str(tmp_path / "none"))


def test_a_line_without_end_is_refused() -> None:
    parts = (b"a" * (1 << 20) for _ in range(64))
    with pytest.raises(UsageError, match="longer than"):
        read_keys(KeySet(), "keys", parts)


def test_keys_are_text_or_bytes() -> None:
    assert len(KeySet.of(["a", b"a", ""])) == 2
    for wrong in ([1], "text", b"bytes", ["\udcff"]):
        with pytest.raises(UsageError):
            KeySet.of(wrong)  # type: ignore[arg-type]


def test_many_keys_fit_their_map() -> None:
    keys = KeySet.of([b"%d" % number for number in range(10_000)])
    found = keys.map()
    assert len(found) == 10_000
    assert found.get(b"10000") == -1
