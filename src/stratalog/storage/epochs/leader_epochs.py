"""Which leader wrote which offsets: each leader epoch with the first offset that was written under it.

A follower that comes back asks where an epoch ended, to cut what it has beyond that. Both columns strictly
increase, or the answers would be wrong: an entry that breaks this removes what it contradicts.

Only the owner of the log changes the entries. Anyone may read them meanwhile: they are one tuple that is
replaced as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.records.layout import INT32_MAX, INT64_MAX
from stratalog.storage.formats.checkpoints import decode_lines, encode_lines
from stratalog.types import NO_LEADER_EPOCH

__all__ = ["UNDEFINED_END", "EpochEnd", "EpochEntry", "LeaderEpochs"]


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset under it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch there is up to the one asked for, and the offset that it ended before."""

    epoch: int
    end_offset: int


#: The answer for an epoch that we know nothing about.
UNDEFINED_END: Final = EpochEnd(NO_LEADER_EPOCH, -1)

_epoch: Final = attrgetter("epoch")
_start: Final = attrgetter("start_offset")


class LeaderEpochs:
    """The entries, oldest first. What changes them says whether it did: then the file is to be written."""

    __slots__ = ("_entries", "_latest_epoch", "_latest_start")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: tuple[EpochEntry, ...] = ()
        # Those of the latest entry once more, because every append asks.
        self._latest_epoch: int | None = None
        self._latest_start = -1
        kept: list[EpochEntry] = []
        for entry in entries:
            _put(kept, entry)
        self._replace(tuple(kept))

    def _replace(self, entries: tuple[EpochEntry, ...]) -> bool:
        if entries == self._entries:
            return False
        self._entries = entries
        self._latest_epoch = entries[-1].epoch if entries else None
        self._latest_start = entries[-1].start_offset if entries else -1
        return True

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        """The entries of a ``leader-epoch-checkpoint``; CorruptionError where it is none.

        Entries out of order are not damage: old brokers left some. They are put in one by one, as
        Kafka does, and the later ones win.
        """
        return cls(
            EpochEntry(line.integer(0, 0, INT32_MAX), line.integer(1, 0, INT64_MAX))
            for line in decode_lines(data, 2)
        )

    def encode(self) -> bytes:
        """The text of ``leader-epoch-checkpoint``."""
        return encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in self._entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def latest(self) -> EpochEntry | None:
        entries = self._entries
        return entries[-1] if entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        entries = self._entries
        return entries[0] if entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` writes from ``start_offset`` on; nothing new where it does already."""
        if epoch == self._latest_epoch and start_offset >= self._latest_start:
            return False
        kept = list(self._entries)
        _put(kept, EpochEntry(epoch, start_offset))
        return self._replace(tuple(kept))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ended. For one that wrote nothing here: where the one before it did.

        An epoch below all that we know ended before the first of them, under its own number.
        """
        entries = self._entries
        if epoch == NO_LEADER_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_END
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(entries, epoch, key=_epoch)
        found = entries[after - 1].epoch if after else epoch
        return EpochEnd(found, entries[after].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``; None where it is older than what we know."""
        entries = self._entries
        after = bisect_right(entries, offset, key=_start)
        return entries[after - 1].epoch if after else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that start at ``end_offset`` or later: the log ends there now."""
        if end_offset < 0:
            return False
        return self._replace(self._entries[: bisect_left(self._entries, end_offset, key=_start)])

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what ended before ``start_offset``: the log starts there now."""
        entries = self._entries
        after = bisect_right(entries, start_offset, key=_start)
        if after == 0:
            return False
        # The epoch that wrote this offset goes on from here.
        return self._replace((EpochEntry(entries[after - 1].epoch, start_offset), *entries[after:]))

    def clear(self) -> bool:
        """Forget all."""
        return self._replace(())

    def __repr__(self) -> str:
        return f"LeaderEpochs({list(map(tuple, self._entries))})"


def _put(entries: list[EpochEntry], new: EpochEntry) -> None:
    if not 0 <= new.epoch <= INT32_MAX or not 0 <= new.start_offset <= INT64_MAX:
        raise UsageError(f"{new}: a leader epoch has 31 bits, an offset 63")
    if entries and new.epoch == entries[-1].epoch and new.start_offset >= entries[-1].start_offset:
        return
    while entries and (
        entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset
    ):
        entries.pop()
    entries.append(new)
