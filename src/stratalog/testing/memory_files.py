"""A whole FileSystem in memory, that knows at every moment what a power cut would leave of it.

It answers as OsFileSystem does on Linux, errno for errno. What a real disk does with time it does only when
told: bytes are durable after ``sync`` of their file, names after ``sync_dir`` of their folder, and nothing is
before. It has no symbolic links, and a relative path starts at its root.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from stratalog.clock import Clock
from stratalog.errors import LockedError, StorageError
from stratalog.storage.files.filesystem import (
    DirEntry,
    FileLock,
    FileStat,
    ReadableFile,
    WritableFile,
)
from stratalog.testing.clock import ManualClock
from stratalog.testing.machine import ChangeKind, Machine
from stratalog.testing.memory_disk import (
    Copies,
    FileNode,
    FolderNode,
    NameOp,
    Node,
    Place,
    names_after,
)
from stratalog.testing.open_files import MemoryLock, MemoryReadableFile, MemoryWritableFile
from stratalog.testing.refusal import not_regular, refusal

__all__ = ["MemoryFileSystem"]

_NAME_SIZE_MAX: Final = 255


class _Found(NamedTuple):
    trail: list[FolderNode]  # from the root to the folder that the name is in
    name: str
    node: Node | None

    @property
    def place(self) -> Place:
        return Place(self.trail[-1], self.name)


class MemoryFileSystem(Machine):
    """A :class:`~stratalog.storage.files.filesystem.FileSystem` in memory. ``folders`` exist from the start,
    and durable."""

    def __init__(self, *, clock: Clock | None = None, folders: Iterable[str] = ()) -> None:
        super().__init__(ManualClock() if clock is None else clock)
        self.root = FolderNode()
        #: The steps in which names changed and that are not durable, in order, of all folders.
        self.unsynced_names: list[NameOp] = []
        for path in folders:
            self._make_dirs(_parts(path))

    def open_readable(self, path: str) -> ReadableFile:
        with self.guard:
            return MemoryReadableFile(self, path, self._file(path))

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        with self.guard:
            if not create:
                if isinstance(self._find(path).node, FolderNode):
                    raise refusal(errno.EISDIR, path)
                return MemoryWritableFile(self, path, self._file(path))
            found = self._find(path)
            if found.node is not None:
                raise refusal(errno.EEXIST, path)
            return MemoryWritableFile(self, path, self._create(found, path))

    def stat(self, path: str) -> FileStat | None:
        with self.guard:
            found = self._find_any(path)
            if found is None or found.node is None:
                return None
            if isinstance(found.node, FolderNode):
                raise not_regular(path)
            node = found.node
            return FileStat(node.content.size, node.modified_ms, node.identity)

    def list_dir(self, path: str) -> list[DirEntry]:
        with self.guard:
            names = self._folder(path).names
            # In an order that means nothing, as a real disk's: who needs one must sort.
            return [
                DirEntry(
                    name, isinstance(names[name], FileNode), isinstance(names[name], FolderNode)
                )
                for name in sorted(names, key=_disorder)
            ]

    def make_dir(self, path: str) -> None:
        with self.guard:
            found = self._find(path)
            if found.node is not None:
                raise refusal(errno.EEXIST, path)
            self.begin(ChangeKind.MAKE_DIR, path)
            self._rename(NameOp(FolderNode(), None, found.place))

    def remove_dir(self, path: str) -> None:
        with self.guard:
            found = self._find(path)
            if found.node is None:
                raise refusal(errno.ENOENT, path)
            if isinstance(found.node, FileNode):
                raise refusal(errno.ENOTDIR, path)
            if found.node is self.root:
                raise refusal(errno.EBUSY, path)
            if found.node.names:
                raise refusal(errno.ENOTEMPTY, path)
            self.begin(ChangeKind.REMOVE_DIR, path)
            self._rename(NameOp(found.node, found.place, None))

    def rename(self, old: str, new: str) -> None:
        with self.guard:
            # The folders of both are entered before either name is looked up.
            start, end = self._enter(old, old), self._enter(new, old)
            source = self._look(*start, old)
            if source.node is None:
                raise refusal(errno.ENOENT, old)
            target = self._look(*end, old)
            if source.node is target.node:
                return
            if source.node in target.trail:
                raise refusal(errno.EINVAL, old)
            if isinstance(target.node, FolderNode):
                if target.node in source.trail:
                    raise refusal(errno.ENOTEMPTY, old)
                if isinstance(source.node, FileNode):
                    raise refusal(errno.EISDIR, old)
                if target.node.names:
                    raise refusal(errno.ENOTEMPTY, old)
            elif target.node is not None and isinstance(source.node, FolderNode):
                raise refusal(errno.ENOTDIR, old)
            self.begin(ChangeKind.RENAME, old)
            self._rename(NameOp(source.node, source.place, target.place))

    def link(self, old: str, new: str) -> None:
        with self.guard:
            source = self._look(*self._enter(old, new), new)
            if source.node is None:
                raise refusal(errno.ENOENT, new)
            target = self._look(*self._enter(new, new), new)
            if target.node is not None:
                raise refusal(errno.EEXIST, new)
            if isinstance(source.node, FolderNode):
                raise refusal(errno.EPERM, new)
            self.begin(ChangeKind.LINK, new)
            self._rename(NameOp(source.node, None, target.place))

    def unlink(self, path: str) -> None:
        with self.guard:
            found = self._find_any(path)
            if found is None or found.node is None:
                return
            if isinstance(found.node, FolderNode):
                raise refusal(errno.EISDIR, path)
            self.begin(ChangeKind.UNLINK, path)
            self._rename(NameOp(found.node, found.place, None))

    def sync_dir(self, path: str) -> None:
        with self.guard:
            folder = self._folder(path)
            # A step that moves a name between two folders is one step for both: what came before it in
            # the other one is durable with it, and what came later is not.
            wanted, durable, rest = {folder}, [], []
            for op in reversed(self.unsynced_names):
                if wanted.isdisjoint(op.folders):
                    rest.append(op)
                else:
                    wanted.update(op.folders)
                    durable.append(op)
            if durable:
                self.begin(ChangeKind.SYNC_DIR, path)
                self._make_durable(reversed(durable))
                self.unsynced_names = rest[::-1]

    def set_modified(self, path: str, modified_ms: int) -> None:
        with self.guard:
            node = self._find(path).node
            if node is None:
                raise refusal(errno.ENOENT, path)
            if isinstance(node, FileNode):
                node.modified_ms = modified_ms

    def free_bytes(self, path: str) -> int | None:  # noqa: ARG002
        """Return None: how much fits into memory is not known."""
        return None

    def lock(self, path: str) -> FileLock:
        with self.guard:
            found = self._find(path)
            if isinstance(found.node, FolderNode):
                raise refusal(errno.EISDIR, path)
            node = found.node or self._create(found, path)
            if node.is_locked:
                raise LockedError("locked: this process has it open for writing already", path=path)
            node.is_locked = True
            return MemoryLock(node)

    # What a test asks, and a product never does.

    def fork(self) -> MemoryFileSystem:
        """The same disk once more, with what is and is not durable of it. Nothing of what happens to one
        shows in the other. Who had files open or locked, or watched, does so only here."""
        with self.guard:
            copies = Copies()
            other = self.with_root(copies.folder(self.root))
            other.unsynced_names = [
                NameOp(copies.node(op.node), copies.place(op.old), copies.place(op.new))
                for op in self.unsynced_names
            ]
            return other

    def with_root(self, root: FolderNode) -> MemoryFileSystem:
        """A machine of its own with another disk, started at the time that it is here."""
        clock = self.clock.fork() if isinstance(self.clock, ManualClock) else self.clock
        other = MemoryFileSystem(clock=clock)
        other.root = root
        return other

    def sync_all(self) -> None:
        """As the command ``sync``: everything is durable. Not counted."""
        with self.guard:
            self._make_durable(self.unsynced_names)
            self.unsynced_names = []
            for _, node in _walk(self.root, ""):
                node.sync()

    def paths(self) -> list[str]:
        """The files that are seen, in order."""
        with self.guard:
            return sorted(path for path, _ in _walk(self.root, ""))

    def read_bytes(self, path: str) -> bytes:
        """All of a file."""
        with self.guard:
            content = self._file(path).content
            return bytes(content.view(0, content.size))

    def _find(self, path: str) -> _Found:
        return self._look(*self._enter(path, path), path)

    def _enter(self, path: str, blamed: str) -> tuple[list[FolderNode], str]:
        """Go as far as the folder that the last name of the path is to be looked up in."""
        self.check_power()
        if not path:
            raise refusal(errno.ENOENT, blamed)
        trail = [self.root]
        parts = _parts(path) or ("..",)  # above the root is the root
        for name in parts[:-1]:
            found = self._look(trail, name, blamed)
            if found.node is None:
                raise refusal(errno.ENOENT, blamed)
            if isinstance(found.node, FileNode):
                raise refusal(errno.ENOTDIR, blamed)
            trail = found.trail if name == ".." else [*trail, found.node]
        return trail, parts[-1]

    def _look(self, trail: list[FolderNode], name: str, blamed: str) -> _Found:
        if name == "..":
            trail = trail[:-1] or trail
            return _Found(trail, name, trail[-1])
        if len(name) > _NAME_SIZE_MAX // 4 and len(name.encode()) > _NAME_SIZE_MAX:
            raise refusal(errno.ENAMETOOLONG, blamed)
        return _Found(trail, name, trail[-1].names.get(name))

    def _find_any(self, path: str) -> _Found | None:
        """As ``_find``; None where a folder on the way is not there."""
        try:
            return self._find(path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def _file(self, path: str) -> FileNode:
        node = self._find(path).node
        if node is None:
            raise refusal(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise not_regular(path)
        return node

    def _folder(self, path: str) -> FolderNode:
        node = self._find(path).node
        if node is None:
            raise refusal(errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise refusal(errno.ENOTDIR, path)
        return node

    def _make_dirs(self, parts: Iterable[str]) -> None:
        folder = self.root
        for part in parts:
            node = folder.names.setdefault(part, FolderNode())
            folder.durable[part] = node
            assert isinstance(node, FolderNode)
            folder = node

    def _create(self, found: _Found, path: str) -> FileNode:
        self.begin(ChangeKind.CREATE, path)
        node = FileNode(self.clock.now_ms())
        self._rename(NameOp(node, None, found.place))
        return node

    def _rename(self, op: NameOp) -> None:
        op.apply(lambda folder: folder.names)
        self.unsynced_names.append(op)

    def _make_durable(self, ops: Iterable[NameOp]) -> None:
        for folder, names in names_after(ops).items():
            folder.durable = names


@lru_cache(maxsize=1024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _disorder(name: str) -> int:
    return crc32(name.encode())


def _walk(folder: FolderNode, path: str) -> Iterator[tuple[str, FileNode]]:
    for name, node in folder.names.items():
        if isinstance(node, FileNode):
            yield f"{path}/{name}", node
        else:
            yield from _walk(node, f"{path}/{name}")
