"""What may be on a disk after the power was cut: of the bytes and names that were not synced, any part.

Bytes of different files, and bytes and names, have no order: each file fares as it will. Steps that change
names keep their order, as in a journal: over all folders, or in each folder for itself. A file whose name is
lost is gone. What was synced is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from random import Random
from typing import Final, NamedTuple

from stratalog.testing.machine import Change, PowerCut
from stratalog.testing.memory_disk import (
    Content,
    ContentOp,
    FileNode,
    FolderNode,
    NameOp,
    Node,
    Write,
    apply_ops,
    names_after,
)
from stratalog.testing.memory_files import MemoryFileSystem

__all__ = [
    "EXTREMES",
    "ContentFate",
    "CrashPlan",
    "CrashPoint",
    "CrashState",
    "NameFate",
    "crash",
    "crash_all_kept",
    "crash_all_lost",
    "crash_planned",
    "crash_state",
    "crash_states",
    "has_unsynced",
    "kill",
]

_SECTOR_SIZE: Final = 512


class ContentFate(StrEnum):
    """What becomes of the changes to a file that were not synced."""

    LOST = "lost"
    KEPT = "kept"
    PREFIX = "prefix"  # the first few
    TORN = "torn"  # the first few, and part of the next
    SUBSET = "subset"  # any: a later one may be there without an earlier one, and zeros in between
    SECTORS = "sectors"  # any sector, as it was after some of the writes to it
    HALF = "half"  # all, but the last write, which is there to its half
    SIZE_ONLY = "size-only"  # the file is as long as it was, and what was added is zeros
    ZERO_TAIL = "zero-tail"  # the same from some sector on


class NameFate(StrEnum):
    """What becomes of the steps that changed names and were not synced."""

    LOST = "lost"
    KEPT = "kept"
    PREFIX = "prefix"  # the first few of all
    PREFIX_EACH = "prefix-each"  # the first few of each folder


_CONTENT_FATES: Final = tuple(ContentFate)
_NAME_FATES: Final = tuple(NameFate)
_BY_NAME: Final = itemgetter(0)
_NO_CHANCE: Final = Random(0)  # noqa: S311 - a plan that leaves nothing open never asks it


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """A kind of power cut. ``contents`` is the fate of every file; None lets each have its own."""

    names: NameFate
    contents: ContentFate | None


class CrashState(NamedTuple):
    """A disk that may come up after a power cut. The name is enough to make it again."""

    name: str
    file_system: MemoryFileSystem


def crash(file_system: MemoryFileSystem, random: Random) -> MemoryFileSystem:
    """Cut the power, and let chance decide what is left: another file system, all of it durable."""
    are_alike = random.random() < 0.4
    contents = random.choice(_CONTENT_FATES) if are_alike else None
    return crash_planned(file_system, CrashPlan(random.choice(_NAME_FATES), contents), random)


def crash_all_lost(file_system: MemoryFileSystem) -> MemoryFileSystem:
    """Cut the power: only what was synced is left."""
    return crash_state(file_system, "all-lost")


def crash_all_kept(file_system: MemoryFileSystem) -> MemoryFileSystem:
    """Cut the power, when everything happened to be on the disk already."""
    return crash_state(file_system, "all-kept")


def kill(file_system: MemoryFileSystem) -> MemoryFileSystem:
    """Kill the process, and not the machine: everything is there, and what was not synced may still be lost
    when the power is cut later. Locks are free."""
    return file_system.fork()


def crash_planned(
    file_system: MemoryFileSystem, plan: CrashPlan, random: Random
) -> MemoryFileSystem:
    """Cut the power as planned; chance decides what the plan leaves open."""
    with file_system.guard:
        kept = _kept_names(file_system.unsynced_names, plan.names, random)
        names = names_after(kept)
        files: dict[FileNode, FileNode] = {}  # a file of two names is one file afterwards, too

        def survivor(folder: FolderNode) -> FolderNode:
            after: dict[str, Node] = {}
            # By name: what chance makes of a disk is the same for all copies of it.
            for name, node in sorted(names.get(folder, folder.durable).items(), key=_BY_NAME):
                if isinstance(node, FolderNode):
                    after[name] = survivor(node)
                else:
                    if node not in files:
                        content = _kept_content(node, plan, random)
                        files[node] = FileNode(node.modified_ms, content)
                    after[name] = files[node]
            return FolderNode(after)

        return file_system.with_root(survivor(file_system.root))


def has_unsynced(file_system: MemoryFileSystem) -> bool:
    """Whether a power cut could lose anything."""
    with file_system.guard:
        return bool(file_system.unsynced_names) or _any_unsynced(file_system.root)


_PLANS: Final = {
    "all-lost": CrashPlan(NameFate.LOST, ContentFate.LOST),
    "all-kept": CrashPlan(NameFate.KEPT, ContentFate.KEPT),
    "all-halved": CrashPlan(NameFate.KEPT, ContentFate.HALF),
    "sizes-only": CrashPlan(NameFate.KEPT, ContentFate.SIZE_ONLY),
}
_KILLED: Final = "killed"
#: The states that are looked at first, wherever the power is cut.
EXTREMES: Final = ("all-lost", "all-kept", _KILLED, "all-halved", "sizes-only")
_RANDOM: Final = "random-"


def crash_state(file_system: MemoryFileSystem, name: str) -> MemoryFileSystem:
    """The state of this name: one of the extremes, or ``random-`` and a seed."""
    if name == _KILLED:
        return kill(file_system)
    if name in _PLANS:
        return crash_planned(file_system, _PLANS[name], _NO_CHANCE)
    if name.startswith(_RANDOM):
        return crash(file_system, Random(int(name.removeprefix(_RANDOM))))  # noqa: S311
    raise ValueError(f"{name!r} is no state: {', '.join(EXTREMES)}, or {_RANDOM}<seed>")


def crash_states(
    file_system: MemoryFileSystem, random: Random, count: int, *, extremes_first: bool = True
) -> Iterator[CrashState]:
    """Up to ``count`` states that may come up when the power is cut now; one, where nothing can be lost.

    First the extremes, then what chance gives; or, without ``extremes_first``, both as chance gives them.
    """
    if not has_unsynced(file_system):
        yield CrashState("all-kept", crash_all_kept(file_system))
        return
    for index in range(count):
        if extremes_first and index < len(EXTREMES):
            name = EXTREMES[index]
        elif not extremes_first and random.random() < 0.5:
            name = random.choice(EXTREMES)
        else:
            name = f"{_RANDOM}{random.getrandbits(32)}"
        yield CrashState(name, crash_state(file_system, name))


class CrashPoint:
    """A watcher that cuts the power before the ``crash_at``-th change that it sees; without one, it only
    counts. Where that change is a write, ``torn_bytes`` of it are done.

    From then on, every call on that file system raises PowerCut: the process is dead.
    """

    def __init__(self, crash_at: int | None = None, *, torn_bytes: int = 0) -> None:
        self.crash_at = crash_at
        self.torn_bytes = torn_bytes
        self.seen = 0

    def __call__(self, change: Change) -> None:
        self.seen += 1
        if self.seen == self.crash_at:
            raise PowerCut(
                f"power cut before change {self.seen}: {change}", torn_bytes=self.torn_bytes
            )


def _any_unsynced(folder: FolderNode) -> bool:
    return any(
        _any_unsynced(node)
        if isinstance(node, FolderNode)
        else not node.is_synced or node.is_rotten
        for node in folder.durable.values()
    )


def _kept_names(ops: Sequence[NameOp], fate: NameFate, random: Random) -> Sequence[NameOp]:
    match fate:
        case NameFate.LOST:
            return ()
        case NameFate.KEPT:
            return ops
        case NameFate.PREFIX:
            return ops[: random.randint(0, len(ops))]
        case NameFate.PREFIX_EACH:
            return _prefix_of_each(ops, random)


def _prefix_of_each(ops: Sequence[NameOp], random: Random) -> list[NameOp]:
    left: dict[FolderNode, int] = {}
    for op in ops:
        for folder in op.folders:
            left[folder] = left.get(folder, 0) + 1
    for folder, count in left.items():
        left[folder] = random.randint(0, count)
    kept = []
    for op in ops:
        # A name that moves between two folders does it in both or in none.
        if all(left[folder] > 0 for folder in op.folders):
            kept.append(op)
            for folder in op.folders:
                left[folder] -= 1
        else:
            left.update(dict.fromkeys(op.folders, 0))
    return kept


def _kept_content(node: FileNode, plan: CrashPlan, random: Random) -> Content:
    if node.is_synced:
        return node.durable
    fate = plan.contents or random.choice(_CONTENT_FATES)
    if fate is ContentFate.LOST:
        return node.durable
    if fate is ContentFate.KEPT:
        return node.written_back()
    return _FATES[fate](node.durable, node.unsynced(), random)


def _prefix(durable: Content, ops: list[ContentOp], random: Random) -> Content:
    return apply_ops(durable, ops[: random.randint(0, len(ops))])


def _torn(durable: Content, ops: list[ContentOp], random: Random) -> Content:
    at = random.randrange(len(ops))
    content, op = apply_ops(durable, ops[:at]), ops[at]
    if not isinstance(op, Write):
        return content
    # A disk writes sectors; what lies between it and us may cut anywhere.
    cut = random.randint(0, len(op.data))
    over = (op.position + cut) % _SECTOR_SIZE
    if over < cut and random.random() < 0.5:
        cut -= over
    return Write(op.position, op.data[:cut]).apply(content) if cut else content


def _subset(durable: Content, ops: list[ContentOp], random: Random) -> Content:
    return apply_ops(durable, (op for op in ops if random.random() < 0.5))


def _sectors(durable: Content, ops: list[ContentOp], random: Random) -> Content:
    # A sector is written as a whole: with it goes all that was done to it before.
    pieces = Counter(
        piece.position // _SECTOR_SIZE
        for op in ops
        if isinstance(op, Write)
        for piece in _pieces(op)
    )
    left = {
        sector: random.choice((0, count, random.randint(0, count)))
        for sector, count in pieces.items()
    }
    kept: list[ContentOp] = []
    for op in ops:
        if isinstance(op, Write):
            for piece in _pieces(op):
                sector = piece.position // _SECTOR_SIZE
                if left[sector] > 0:
                    kept.append(piece)
                left[sector] -= 1
        elif random.random() < 0.5:
            kept.append(op)
    return apply_ops(durable, kept)


def _pieces(op: Write) -> Iterator[Write]:
    done = 0
    while done < len(op.data):
        size = _SECTOR_SIZE - (op.position + done) % _SECTOR_SIZE
        yield Write(op.position + done, op.data[done : done + size])
        done += size


def _half(durable: Content, ops: list[ContentOp], _: Random) -> Content:
    content, op = apply_ops(durable, ops[:-1]), ops[-1]
    if not isinstance(op, Write):
        return content
    return Write(op.position, op.data[: len(op.data) // 2]).apply(content)


def _size_only(durable: Content, ops: list[ContentOp], _: Random) -> Content:
    return durable.resize(apply_ops(durable, ops).size)


def _zero_tail(durable: Content, ops: list[ContentOp], random: Random) -> Content:
    whole = apply_ops(durable, ops)
    if whole.size <= durable.size:
        return durable.resize(whole.size)
    # A file may be long before it holds anything: the place is looked for where there were writes.
    ends = [op.position + len(op.data) for op in ops if isinstance(op, Write)]
    end = max(durable.size, min(whole.size, max(ends, default=0)))
    cut = random.randint(durable.size // _SECTOR_SIZE, end // _SECTOR_SIZE) * _SECTOR_SIZE
    cut = max(durable.size, cut)
    return whole.resize(cut).resize(whole.size)


_FATES: Final[dict[ContentFate, Callable[[Content, list[ContentOp], Random], Content]]] = {
    ContentFate.PREFIX: _prefix,
    ContentFate.TORN: _torn,
    ContentFate.SUBSET: _subset,
    ContentFate.SECTORS: _sectors,
    ContentFate.HALF: _half,
    ContentFate.SIZE_ONLY: _size_only,
    ContentFate.ZERO_TAIL: _zero_tail,
}
