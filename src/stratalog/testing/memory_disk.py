"""What a disk in memory holds: what is seen of it, and beside that what a power cut would leave.

Contents are values: a write gives a new one that shares its pages with the old. So a whole disk is copied by
copying references, and what was durable at some moment stays what it was at no cost.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final, NamedTuple

from stratalog.storage.files.filesystem import FileIdentity

__all__ = [
    "EMPTY",
    "PAGE_SIZE",
    "Content",
    "ContentOp",
    "Copies",
    "FileNode",
    "FolderNode",
    "NameOp",
    "Node",
    "Place",
    "Resize",
    "Write",
    "apply_ops",
    "names_after",
]

#: A write copies the pages that it touches: small enough for that, large enough to have few.
PAGE_SIZE: Final = 64 << 10


class Content(NamedTuple):
    """The bytes of a file. A page that is missing, or short, goes on with zeros."""

    size: int
    pages: Mapping[int, bytes]

    def write(self, position: int, data: bytes) -> Content:
        if not data:
            return self  # nothing is written, and the file grows no longer by it
        pages = dict(self.pages)
        number, start = divmod(position, PAGE_SIZE)
        done = 0
        while done < len(data):
            piece = data[done : done + PAGE_SIZE - start]
            page = pages.get(number, b"")
            rest = page[start + len(piece) :]
            pages[number] = page[:start].ljust(start, b"\0") + piece + rest
            done += len(piece)
            number, start = number + 1, 0
        return Content(max(self.size, position + len(data)), pages)

    def resize(self, size: int) -> Content:
        if size >= self.size:
            return Content(size, self.pages)
        last, end = divmod(size, PAGE_SIZE)
        pages = {number: page for number, page in self.pages.items() if number < last}
        if end and last in self.pages:
            pages[last] = self.pages[last][:end]  # what is cut off must not come back when it grows
        return Content(size, pages)

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = max(0, min(len(buffer), self.size - position))
        done = 0
        while done < count:
            number, start = divmod(position + done, PAGE_SIZE)
            stop = min(count, done + PAGE_SIZE - start)
            piece = self.pages.get(number, b"")[start : start + stop - done]
            filled = done + len(piece)
            buffer[done:filled] = piece
            if filled < stop:
                buffer[filled:stop] = bytes(stop - filled)
            done = stop
        return count

    def view(self, position: int, size: int) -> memoryview:
        """These bytes, read-only: within a page as they are, else as a copy. Zeros are not touched."""
        number, start = divmod(position, PAGE_SIZE)
        page = self.pages.get(number, b"")
        if start + size <= len(page):
            return memoryview(page)[start : start + size]
        whole = mmap.mmap(-1, size)  # zeros that take no room
        for each in range(number, (position + size - 1) // PAGE_SIZE + 1):
            if page := self.pages.get(each, b""):
                at = each * PAGE_SIZE - position
                piece = page[max(0, -at) : size - at]
                whole[max(0, at) : max(0, at) + len(piece)] = piece
        return memoryview(whole).toreadonly()


EMPTY: Final = Content(0, {})


class Write(NamedTuple):
    """Bytes that were put at a position."""

    position: int
    data: bytes

    def apply(self, content: Content) -> Content:
        return content.write(self.position, self.data)


class Resize(NamedTuple):
    """A file that was cut, or made longer."""

    size: int

    def apply(self, content: Content) -> Content:
        return content.resize(self.size)


ContentOp = Write | Resize


def apply_ops(content: Content, ops: Iterable[ContentOp]) -> Content:
    """The content after these changes, in this order."""
    for op in ops:
        content = op.apply(content)
    return content


_inodes = count(1)


class _Unsynced(NamedTuple):
    # A list that grows at its end and is shared by all copies of a disk, whatever they add to it.
    op: ContentOp
    before: _Unsynced | None


class FileNode:
    """A file, whatever its name, or without one: what reads see, and what is on the disk."""

    __slots__ = (
        "_unsynced",
        "content",
        "durable",
        "identity",
        "is_locked",
        "is_rotten",
        "modified_ms",
    )

    def __init__(self, modified_ms: int, content: Content = EMPTY) -> None:
        #: As device and inode: the same in a copy of the disk, and never given to another file.
        self.identity: FileIdentity = (0, next(_inodes))
        self.content = content
        self.durable = content
        self.is_locked = False
        #: A sync failed: part of what reads see will never be on the disk.
        self.is_rotten = False
        self.modified_ms = modified_ms
        self._unsynced: _Unsynced | None = None

    def change(self, op: ContentOp) -> None:
        self.content = op.apply(self.content)
        self._unsynced = _Unsynced(op, self._unsynced)

    @property
    def is_synced(self) -> bool:
        return self._unsynced is None

    def unsynced(self) -> list[ContentOp]:
        """What was done to the content since it was durable, in order."""
        ops = []
        each = self._unsynced
        while each is not None:
            ops.append(each.op)
            each = each.before
        ops.reverse()
        return ops

    def sync(self) -> None:
        self.durable = self.written_back()
        self._unsynced = None

    def written_back(self) -> Content:
        """What will be on the disk if everything gets there that still can."""
        return apply_ops(self.durable, self.unsynced()) if self.is_rotten else self.content

    def lose_unsynced(self) -> None:
        """What a failed sync leaves: the system takes its pages for clean, and never writes them."""
        self.is_rotten = self.is_rotten or not self.is_synced
        self._unsynced = None

    def fork(self) -> FileNode:
        other = FileNode(self.modified_ms, self.content)
        other.identity = self.identity
        other.durable = self.durable
        other.is_rotten = self.is_rotten
        other._unsynced = self._unsynced
        return other


class FolderNode:
    """A folder: the names that are seen in it, and those that are on the disk."""

    __slots__ = ("durable", "names")

    def __init__(self, names: dict[str, Node] | None = None) -> None:
        self.names: dict[str, Node] = {} if names is None else names
        self.durable: dict[str, Node] = dict(self.names)


Node = FileNode | FolderNode


class Place(NamedTuple):
    """A name in a folder."""

    folder: FolderNode
    name: str


class NameOp(NamedTuple):
    """One step in which a name appears (``new``), goes (``old``), or moves (both)."""

    node: Node
    old: Place | None
    new: Place | None

    @property
    def folders(self) -> tuple[FolderNode, ...]:
        # In an order that does not depend on where they lie in memory: what chance makes of them must
        # be the same in every run.
        places = (place.folder for place in (self.old, self.new) if place is not None)
        return tuple(dict.fromkeys(places))

    def apply(self, names_of: Callable[[FolderNode], dict[str, Node]]) -> None:
        if self.old is not None:
            names_of(self.old.folder).pop(self.old.name, None)
        if self.new is not None:
            names_of(self.new.folder)[self.new.name] = self.node


def names_after(ops: Iterable[NameOp]) -> dict[FolderNode, dict[str, Node]]:
    """The names that would be on the disk after these steps, in the folders that they touch."""
    after: dict[FolderNode, dict[str, Node]] = {}

    def names_of(folder: FolderNode) -> dict[str, Node]:
        if folder not in after:
            after[folder] = dict(folder.durable)
        return after[folder]

    for op in ops:
        op.apply(names_of)
    return after


class Copies:
    """A graph of folders and files once more. A file may be under one name as seen, under another on the
    disk, and under a third in between: it is one file in the copy too."""

    def __init__(self) -> None:
        self._files: dict[FileNode, FileNode] = {}
        self._folders: dict[FolderNode, FolderNode] = {}

    def node(self, node: Node) -> Node:
        if isinstance(node, FolderNode):
            return self.folder(node)
        copy = self._files.get(node)
        if copy is None:
            copy = self._files[node] = node.fork()
        return copy

    def folder(self, folder: FolderNode) -> FolderNode:
        copy = self._folders.get(folder)
        if copy is None:
            copy = self._folders[folder] = FolderNode()
            copy.names = {name: self.node(node) for name, node in folder.names.items()}
            if folder.durable == folder.names:
                copy.durable = dict(copy.names)
            else:
                copy.durable = {name: self.node(node) for name, node in folder.durable.items()}
        return copy

    def place(self, place: Place | None) -> Place | None:
        return None if place is None else Place(self.folder(place.folder), place.name)
