"""The file system in memory against the machine's own: the same calls give the same results and errors.

Method: Hypothesis makes up sequences of calls over a few names; each is made on a MemoryFileSystem and, below
a fresh folder, on an OsFileSystem. What comes back is compared: values, kinds of error, errno, words, path.
"""

from __future__ import annotations

import errno
import shutil
import sys
import tempfile
import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule

from stratalog.errors import LockedError, StorageError
from stratalog.storage.files.filesystem import (
    FileSystem,
    OsFileSystem,
    ReadableFile,
    WritableFile,
    replace_file,
)
from stratalog.testing import MemoryFileSystem
from stratalog.testing.memory_disk import PAGE_SIZE, Content
from tests.scale import SCALE, sized

NAMES = st.sampled_from(["a", "b", "d", "e"])
PATHS = st.one_of(
    NAMES,
    st.tuples(NAMES, NAMES).map("/".join),
    st.tuples(NAMES, NAMES, NAMES).map("/".join),
    st.sampled_from(["d/../a", "d/./a", "missing/a", "d/" + "n" * 256, "d/" + "é" * 128]),
)
POSITIONS = st.one_of(
    st.integers(0, 40), st.sampled_from([4095, 4096, PAGE_SIZE - 1, PAGE_SIZE, 3 * PAGE_SIZE + 7])
)
DATA = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"x" * 5000, b"y" * (PAGE_SIZE + 1), b"z" * (2 * PAGE_SIZE)]),
)
SIZES = st.one_of(POSITIONS, st.just(2 * PAGE_SIZE + 100))


class Pair:
    """The same thing open in both."""

    def __init__(self, memory: Any, real: Any) -> None:
        self.memory = memory
        self.real = real


class BothFileSystems(RuleBasedStateMachine):
    readable = Bundle("readable")
    writable = Bundle("writable")
    locks = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="stratalog-")
        self.memory = MemoryFileSystem(folders=[self.root])
        self.real = OsFileSystem()
        self.held: list[Pair] = []

    def teardown(self) -> None:
        for pair in self.held:
            pair.real.close()
        shutil.rmtree(self.root)

    def both(self, method: str, *paths: str, **options: Any) -> Any:
        full = [f"{self.root}/{path}" for path in paths]
        return self.same(
            lambda: getattr(self.memory, method)(*full, **options),
            lambda: getattr(self.real, method)(*full, **options),
        )

    def same(self, memory: Any, real: Any) -> Any:
        ours, theirs = outcome(memory), outcome(real)
        assert kind_of(ours) == kind_of(theirs)
        if isinstance(ours, StorageError):
            return None
        return Pair(ours, theirs)

    def opened(self, pair: Pair | None) -> Any:
        if pair is None:
            return multiple()
        self.held.append(pair)
        return pair

    @rule(target=readable, path=PATHS)
    def open_readable(self, path):
        return self.opened(self.both("open_readable", path))

    @rule(target=writable, path=PATHS, create=st.booleans())
    def open_writable(self, path, create):
        return self.opened(self.both("open_writable", path, create=create))

    @rule(target=writable, path=NAMES)
    def create(self, path):
        return self.opened(self.both("open_writable", path, create=True))

    @rule(path=PATHS)
    def stat(self, path):
        pair = self.both("stat", path)
        if pair is not None and pair.memory is not None:
            assert pair.memory.size == pair.real.size

    @rule(path=PATHS, modified_ms=st.integers(-5_000, 2**41))
    def set_modified(self, path, modified_ms):
        if self.both_with("set_modified", path, modified_ms) is not None:
            pair = self.both("stat", path)
            assert pair is None or pair.memory[:2] == pair.real[:2]

    @rule(path=PATHS, other=PATHS)
    def are_same_file(self, path, other):
        one, two = self.both("stat", path), self.both("stat", other)
        if one is not None and two is not None and one.memory and two.memory:
            is_same = one.real.identity == two.real.identity
            assert (one.memory.identity == two.memory.identity) is is_same

    def both_with(self, method: str, path: str, value: int) -> Any:
        full = f"{self.root}/{path}"
        return self.same(
            lambda: getattr(self.memory, method)(full, value),
            lambda: getattr(self.real, method)(full, value),
        )

    @rule(path=st.one_of(st.just("."), PATHS))
    def list_dir(self, path):
        pair = self.both("list_dir", path)
        assert pair is None or sorted(pair.memory) == sorted(pair.real)

    @rule(path=PATHS, method=st.sampled_from(["make_dir", "remove_dir", "unlink", "sync_dir"]))
    def change_name(self, path, method):
        self.both(method, path)

    @rule(path=NAMES)
    def make_dir(self, path):
        self.both("make_dir", path)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old, new):
        self.both("rename", old, new)

    @rule(old=PATHS, new=PATHS)
    def link(self, old, new):
        self.both("link", old, new)

    @rule(target=locks, path=PATHS)
    def lock(self, path):
        return self.opened(self.both("lock", path))

    @rule(pair=st.one_of(readable, writable, locks))
    def close(self, pair):
        pair.memory.close()
        pair.real.close()

    @rule(pair=writable, position=st.one_of(POSITIONS, st.just(-1)), data=DATA)
    def write_at(self, pair, position, data):
        self.same(
            lambda: pair.memory.write_at(position, bytearray(data)),
            lambda: pair.real.write_at(position, bytearray(data)),
        )

    @rule(pair=writable, size=st.one_of(SIZES, st.just(-1)))
    def truncate(self, pair, size):
        self.same(lambda: pair.memory.truncate(size), lambda: pair.real.truncate(size))

    @rule(pair=writable)
    def sync(self, pair):
        if pair.real.fileno() >= 0:
            self.same(pair.memory.sync, pair.real.sync)

    @rule(pair=st.one_of(readable, writable), position=POSITIONS, size=SIZES)
    def read_into(self, pair, position, size):
        self.same(
            lambda: read(pair.memory, position, size), lambda: read(pair.real, position, size)
        )

    @rule(pair=st.one_of(readable, writable), position=POSITIONS, size=SIZES)
    def map(self, pair, position, size):
        if pair.real.fileno() < 0:
            return  # OsFileSystem maps memory of nobody then
        self.same(
            lambda: bytes(pair.memory.map(position, size)),
            lambda: bytes(pair.real.map(position, size)),
        )

    @rule(pair=st.one_of(readable, writable))
    def size(self, pair):
        if pair.real.fileno() >= 0:
            assert pair.memory.size() == pair.real.size()


TestBothFileSystems = pytest.mark.scaled(
    pytest.mark.skipif(sys.platform != "linux", reason="which errno it is differs elsewhere")(
        BothFileSystems.TestCase
    )
)
TestBothFileSystems.settings = settings(
    max_examples=sized(40, 100 * SCALE), stateful_step_count=40, deadline=None
)


def read(file: ReadableFile, position: int, size: int) -> bytes:
    buffer = bytearray(b"?" * size)
    count = file.read_into(position, memoryview(buffer))
    return bytes(buffer[:count])


def outcome(call: Any) -> Any:
    try:
        return call()
    except StorageError as error:
        return error


def kind_of(result: Any) -> Any:
    if isinstance(result, StorageError):
        return (type(result), result.errno, result.detail, result.path)
    if isinstance(result, bytes | int | None):
        return result
    return None  # an open file, or what its rule compares


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem(folders=["/logs"])


def write(fs: FileSystem, path: str, data: bytes) -> WritableFile:
    file = fs.open_writable(path, create=True)
    file.write_at(0, data)
    return file


def test_unlinked_file_stays_readable_to_who_has_it_open(fs):
    write(fs, "/logs/a", b"abc")
    file = fs.open_readable("/logs/a")
    fs.unlink("/logs/a")
    assert fs.stat("/logs/a") is None
    assert bytes(file.map(0, 3)) == b"abc"


def test_rename_replaces_what_was_there(fs):
    write(fs, "/logs/a", b"old")
    replace_file(fs, "/logs/a", "/logs/a.tmp", b"new")
    assert fs.paths() == ["/logs/a"]
    assert fs.read_bytes("/logs/a") == b"new"


def test_two_names_are_one_file(fs):
    file = write(fs, "/logs/a", b"old")
    fs.link("/logs/a", "/logs/b")
    file.write_at(0, b"new!")
    assert fs.read_bytes("/logs/b") == fs.fork().read_bytes("/logs/b") == b"new!"
    fs.unlink("/logs/a")
    assert fs.paths() == ["/logs/b"]


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("/logs/a", "/logs", errno.ENOTEMPTY),
        ("/logs", "/logs/sub", errno.EINVAL),
        ("/logs", "/logs/a", errno.EINVAL),
        ("/logs/a", "/other", errno.EISDIR),
        ("/other", "/logs", errno.ENOTEMPTY),
        ("/other", "/logs/a", errno.ENOTDIR),
        ("/none", "/logs", errno.ENOENT),
        ("/logs/a/b", "/c", errno.ENOTDIR),
    ],
)
def test_rename_that_cannot_be_is_refused(fs, old, new, number):
    write(fs, "/logs/a", b"abc")
    fs.make_dir("/other")
    with pytest.raises(StorageError) as caught:
        fs.rename(old, new)
    assert (caught.value.errno, caught.value.path) == (number, old)
    assert fs.paths() == ["/logs/a"]


def test_map_is_read_only_and_stays_what_it_was(fs):
    file = write(fs, "/logs/a", b"abc")
    view = file.map(1, 2)
    file.write_at(0, b"xyz")
    assert view.readonly
    assert bytes(view) == b"bc"


def test_sparse_file_takes_no_room_and_reads_as_zeros(fs):
    file = fs.open_writable("/logs/a.index", create=True)
    file.truncate(10 << 20)
    file.write_at(8, b"entry")
    node = fs.root.names["logs"].names["a.index"]
    assert sum(map(len, node.content.pages.values())) == 13
    assert file.size() == 10 << 20
    assert bytes(file.map(0, 10 << 20)).strip(b"\0") == b"entry"
    file.truncate(10)
    file.truncate(20)
    assert fs.read_bytes("/logs/a.index") == bytes(8) + b"en" + bytes(10)


def test_contents_share_their_pages():
    one = Content(0, {}).write(0, b"a" * PAGE_SIZE).write(PAGE_SIZE, b"b" * PAGE_SIZE)
    other = one.write(PAGE_SIZE, b"c")
    assert other.pages[0] is one.pages[0]
    assert one.pages[1][:1] == b"b"


def test_second_lock_is_refused_until_the_first_is_closed(fs):
    lock = fs.lock("/logs/.lock")
    with pytest.raises(LockedError):
        fs.lock("/logs/.lock")
    lock.close()
    lock.close()
    fs.lock("/logs/.lock").close()
    assert fs.paths() == ["/logs/.lock"]


def test_time_of_change_comes_from_the_clock(fs):
    file = write(fs, "/logs/a", b"")
    fs.clock.advance(5)
    file.write_at(0, b"x")
    changed = fs.clock.now_ms()
    fs.clock.advance(5)
    fs.rename("/logs/a", "/logs/b")
    assert fs.stat("/logs/b").modified_ms == changed


def test_names_are_not_listed_in_order(fs):
    """Who relies on the order of a folder would find out on a real disk only."""
    names = [f"{number:020d}.log" for number in range(20)]
    for name in names:
        write(fs, f"/logs/{name}", b"")
    listed = [entry.name for entry in fs.list_dir("/logs")]
    assert sorted(listed) == names != listed


def test_closed_file_refuses(fs):
    file = write(fs, "/logs/a", b"abc")
    file.close()
    for call in (file.size, file.sync, lambda: file.map(0, 1), lambda: file.write_at(0, b"x")):
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_changes_count_what_changes(fs):
    file = write(fs, "/logs/a", b"abc")  # 2: create, write
    file.sync()  # 3
    file.sync()
    file.truncate(3)
    file.write_at(0, b"")
    fs.unlink("/logs/none")
    with pytest.raises(StorageError):
        fs.make_dir("/logs")
    assert fs.changes == 3
    fs.sync_dir("/logs")  # 4
    fs.sync_dir("/logs")
    fs.rename("/logs/a", "/logs/b")  # 5
    fs.unlink("/logs/b")  # 6
    fs.lock("/logs/.lock")  # 7: it creates the file
    assert fs.changes == 7


def test_fork_shares_nothing_that_changes(fs):
    file = write(fs, "/logs/a", b"abc")
    fs.lock("/logs/.lock")
    other = fs.fork()
    file.write_at(0, b"xyz")
    fs.rename("/logs/a", "/logs/b")
    fs.clock.advance(1)
    assert other.read_bytes("/logs/a") == b"abc"
    assert other.clock.now_ms() == fs.clock.now_ms() - 1
    other.lock("/logs/.lock")
    other.unlink("/logs/a")
    assert fs.read_bytes("/logs/b") == b"xyz"


def test_threads_that_write_and_sync_lose_nothing(fs):
    """Group commit: one thread syncs what others append."""
    files = [write(fs, f"/logs/{number}", b"") for number in range(4)]

    def append(file: WritableFile) -> None:
        for position in range(200):
            file.write_at(position, b"x")
            file.sync()

    threads = [threading.Thread(target=append, args=(file,)) for file in files for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path in fs.paths():
        node = fs.root.names["logs"].names[path.removeprefix("/logs/")]
        assert node.is_synced
        assert node.durable.size == 200
