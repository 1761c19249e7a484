"""``stratalog-commits.journal``: which commits a log directory has promised, and which are done.

Lines are only added, each synced before anything is built on it; now and then the file is written anew, and
replaced in one step. Readers take what they find: a last line that is torn was promised to nobody. Whoever
writes holds the directory's lock.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stratalog.errors import CorruptionError, LogFailedError, StorageError
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.records import (
    NOT_A_RECORD,
    Begin,
    CommitRecord,
    Done,
    Highest,
    Intent,
    Revised,
    Revision,
    decode_line,
    encode_line,
)
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import (
    STRATALOG_COMMITS,
    STRATALOG_COMMITS_UNSYNCED,
    TEMPORARY_SUFFIX,
)
from stratalog.types import TopicPartition

__all__ = ["CommitJournal", "JournalState", "OpenCommit", "decode_journal", "read_journal"]

#: So many commits are known in detail; of older ones, that they are done.
DETAILS_KEPT: Final = 64
#: A journal that has grown by so much is written anew.
_COMPACT_BYTES: Final = 16 << 10
_SIZE_MAX: Final = 1 << 30
_TEXT_AT: Final = 9  # behind the CRC and a blank
_DECODER: Final = json.JSONDecoder()
_ADVICE: Final = (
    "restore it from a backup; or move it away: then a batch that is written again is not known to be there, "
    "and part of a commit that was under way may be shown"
)


@dataclass(frozen=True, slots=True)
class OpenCommit:
    """A commit that was promised and is not done, as far as it is told."""

    intent: Intent
    revisions: tuple[Revision, ...] = ()

    def last_revision(self, topic_partition: TopicPartition) -> Revision | None:
        """Where the rest of a partition's pieces goes; None where the intent still says it."""
        found = None
        for each in self.revisions:
            if each.topic_partition == topic_partition:
                found = each
        return found

    def visible_ends(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that may be of this commit."""
        ends = {each.topic_partition: each.start for each in self.intent.partitions}
        for each in self.revisions:
            ends[each.topic_partition] = min(ends.get(each.topic_partition, each.start), each.start)
        return ends


@dataclass(frozen=True, slots=True)
class JournalState:
    """What the journal says at one moment. ``size_bytes`` is where its last whole line ends."""

    generation: int = 0
    last_number: int = 0
    open: tuple[OpenCommit, ...] = ()
    done: Mapping[int, Done] = field(default_factory=dict)
    highest: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    compacted_bytes: int = 0
    has_torn_tail: bool = False

    @property
    def is_there(self) -> bool:
        """Whether there is a journal at all: every one has a first line."""
        return self.generation > 0

    def is_done(self, key: CommitKey) -> bool:
        """Whether this version of its owner, or a later one, is done. A fresh owner is known for as long as
        its details are."""
        if key.version <= self.highest.get(key.owner, -1):
            return True
        return any(done.key == key for done in self.done.values())

    def done_as(self, key: CommitKey) -> Done | None:
        """The details, where they are still known."""
        for each in self.done.values():
            if (each.key.owner, each.key.version) == (key.owner, key.version):
                return each
        return None

    def with_record(self, record: CommitRecord) -> JournalState:
        """The state when one more line is there. ValueError where it does not fit those before."""
        builder = _JournalBuilder(self)
        builder.add(record)
        return builder.state(self.size_bytes)

    def records(self) -> Iterator[CommitRecord]:
        """What must stand behind the first line to say the same, and no more."""
        if self.highest:
            yield Highest(self.highest)
        for number in sorted(self.done):
            yield self.done[number]
        for each in self.open:
            yield each.intent
            if each.revisions:
                yield Revised(each.intent.number, each.revisions)


class _JournalBuilder:
    """A state to which lines are added, one after the other."""

    def __init__(self, state: JournalState) -> None:
        self._generation = state.generation
        self._compacted_bytes = state.compacted_bytes
        self._last_number = state.last_number
        self._open = {each.intent.number: each for each in state.open}
        self._done = dict(state.done)
        self._highest = dict(state.highest)

    def add(self, record: CommitRecord) -> None:
        match record:
            case Begin():
                if self._generation:
                    raise ValueError("a second beginning")
                self._generation = record.generation
                self._last_number = record.last_number
                self._compacted_bytes = record.size_bytes
            case Intent():
                if record.number in self._open or record.number > self._last_number + 1:
                    raise ValueError(f"commit {record.number} behind {self._last_number}")
                self._last_number = max(self._last_number, record.number)
                self._open[record.number] = OpenCommit(record)
            case Revised():
                if record.number not in self._open:
                    raise ValueError(f"commit {record.number} is revised, and not open")
                commit = self._open[record.number]
                revisions = (*commit.revisions, *record.revisions)
                self._open[record.number] = OpenCommit(commit.intent, revisions)
            case Done():
                self._add_done(record)
            case Highest():
                self._highest.update(record.versions)

    def _add_done(self, record: Done) -> None:
        if record.number > self._last_number + 1:
            raise ValueError(f"commit {record.number} is done behind {self._last_number}")
        self._last_number = max(
            self._last_number, record.number
        )  # one without records has no intent
        self._open.pop(record.number, None)
        self._done[record.number] = record
        key = record.key
        if not key.is_fresh:
            self._highest[key.owner] = max(key.version, self._highest.get(key.owner, 0))

    def state(self, size_bytes: int, *, has_torn_tail: bool = False) -> JournalState:
        for number in sorted(self._done)[:-DETAILS_KEPT]:
            del self._done[number]
        return JournalState(
            self._generation,
            self._last_number,
            tuple(self._open[number] for number in sorted(self._open)),
            self._done,
            self._highest,
            size_bytes,
            self._compacted_bytes,
            has_torn_tail,
        )


def decode_journal(data: bytes) -> JournalState:
    """The state after all lines. CorruptionError where a line is wrong and another one follows it: only
    the last can be torn."""
    builder = _JournalBuilder(JournalState())
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        try:
            record = None if end < 0 else decode_line(data[position:end])
            if record is not None:
                if position == 0 and not isinstance(record, Begin):
                    raise ValueError("the first line is not the beginning")
                builder.add(record)
        except NOT_A_RECORD as error:
            raise _wrong(position, f"invalid content: {error}") from None
        if record is None:
            if _is_damage(data, position):
                raise _wrong(position, "a line whose CRC is not that of its text; others follow")
            return builder.state(position, has_torn_tail=True)
        position = end + 1
    return builder.state(position)


def _is_damage(data: bytes, position: int) -> bool:
    """Whether the line at ``position`` is wrong and cannot be the torn last one: another follows that is
    whole, or it is whole itself and lost its end. Every line is written by itself, and synced before the
    next."""
    first, *others = data[position:].split(b"\n")
    try:
        _, end = _DECODER.raw_decode(first[_TEXT_AT:].decode("latin-1"))
        behind = first[_TEXT_AT + end :].strip(b"\0")
        if behind and decode_line(first[: _TEXT_AT + end]) is not None:
            return True
    except NOT_A_RECORD:
        pass
    for line in others[:-1]:
        try:
            if decode_line(line) is not None:
                return True
        except NOT_A_RECORD:
            return True  # its CRC is right
    return False


def _wrong(position: int, detail: str) -> CorruptionError:
    return CorruptionError("commit_journal", detail, position=position, advice=_ADVICE)


def read_journal(file_system: FileSystem, root: str) -> JournalState:
    """Return the state of a log directory's journal: the empty state if there is no journal."""
    path = os.path.join(root, STRATALOG_COMMITS)
    data = read_small_file(file_system, path, size_max=_SIZE_MAX)
    if data is None:
        return JournalState()
    try:
        return decode_journal(data)
    except CorruptionError as error:
        raise error.located(path=path) from None


class CommitJournal:
    """The journal in the hands of the one who may write."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._root = root
        self.path = os.path.join(root, STRATALOG_COMMITS)
        self._note = os.path.join(root, STRATALOG_COMMITS_UNSYNCED)
        self._failure: StorageError | None = None
        self.state = JournalState()

    def read(self) -> None:
        """Take what the file says; nothing is changed. CorruptionError where it is damaged."""
        self.state = read_journal(self._file_system, self._root)

    def begin(self) -> None:
        """From here on it is acted upon. What a dead process wrote last may not be on the disk yet: nothing
        may be built on it before it is. After a failed sync no other one helps: it is written anew."""
        state = self.state
        if state.open or state.has_torn_tail or self._file_system.stat(self._note) is not None:
            self._replace(state)
            self._file_system.unlink(self._note)
        elif state.is_there:
            self._write(b"")

    def append(self, record: CommitRecord) -> None:
        """Add a line. When this returns it is on the disk; where it raises, nobody knows, and the journal is
        not written to any more before it was read again."""
        if self._failure is not None:
            raise LogFailedError(
                f"an earlier write failed ({self._failure.detail}): open the directory again",
                path=self.path,
                errno=self._failure.errno,
            )
        state = self.state.with_record(record)
        if not state.is_there:
            self._replace(state)
            return
        line = encode_line(record)
        self._write(line)
        self.state = replace(state, size_bytes=state.size_bytes + len(line))

    def compact_if_grown(self) -> bool:
        """Write it anew where it has grown, without what nobody will ask for."""
        state = self.state
        grown = state.size_bytes - state.compacted_bytes
        if self._failure is not None or grown < max(_COMPACT_BYTES, state.compacted_bytes):
            return False
        self._replace(state)
        return True

    def _write(self, line: bytes) -> None:
        """Add a line, or nothing, and sync. A sync that fails lets what never reached the disk look clean
        from then on, as long as the machine runs. The note that says so is there before, for a disk that
        is full takes no new name; it need not be on the disk itself."""
        try:
            self._leave_note()
            file = self._file_system.open_writable(self.path)
            try:
                if line:
                    file.write_at(self.state.size_bytes, line)
                file.sync()
            finally:
                file.close()
            self._file_system.unlink(self._note)
        except StorageError as error:
            self._failure = error
            raise
        except BaseException:
            self._failure = StorageError("interrupted", path=self.path)
            raise

    def _leave_note(self) -> None:
        try:
            self._file_system.open_writable(self._note, create=True).close()
        except StorageError as error:
            if error.errno != errno.EEXIST:
                raise

    def _replace(self, state: JournalState) -> None:
        lines = b"".join(map(encode_line, state.records()))
        begin = Begin(state.generation + 1, state.last_number, len(lines))
        data = encode_line(begin) + lines
        try:
            replace_file(self._file_system, self.path, self.path + TEMPORARY_SUFFIX, data)
        except StorageError as error:
            self._failure = error
            raise
        self.state = replace(
            state,
            generation=begin.generation,
            size_bytes=len(data),
            compacted_bytes=len(lines),
            has_torn_tail=False,
        )
