"""Whose commit it is: the name that makes a second try of it the same commit, and not another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.records.layout import INT64_MAX

__all__ = ["CommitKey"]

_OWNER_SIZE_MAX: Final = 1024
_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class CommitKey:
    """An owner and the version that it writes: a streaming query and its batch id, or an application and
    the number that it gives a write (Delta Lake's ``txnAppId`` and ``txnVersion``).

    An owner's versions rise. What is at or below the highest one that is done, is done. An owner that
    ``is_fresh`` writes once: nobody will ask for it again, and it need not be remembered for ever.
    """

    owner: str
    version: int
    is_fresh: bool = False

    def __post_init__(self) -> None:
        if not self.owner or len(self.owner) > _OWNER_SIZE_MAX or not self.owner.isprintable():
            raise UsageError(
                f"a commit's owner is 1 to {_OWNER_SIZE_MAX} printable characters, not {self.owner!r}"
            )
        if type(self.version) is not int or not 0 <= self.version <= INT64_MAX:
            raise UsageError(
                f"a commit's version is a whole number from 0 on, not {self.version!r}"
            )

    @classmethod
    def fresh(cls) -> CommitKey:
        """A key that nobody else has: every write with one is a write of its own."""
        import uuid

        return cls(str(uuid.uuid4()), 0, is_fresh=True)

    @property
    def owner_digest(self) -> str:
        """Sixteen hexadecimal digits that stand for the owner in the names of files."""
        import hashlib  # readers of the journal need neither

        return hashlib.blake2b(self.owner.encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def __str__(self) -> str:
        return f"{self.owner} {self.version}"
