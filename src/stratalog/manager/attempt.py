"""Do several things, so that one that fails does not keep the others from being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stratalog.errors import StratalogError

__all__ = ["attempt", "attempt_each", "raise_first"]


def attempt(call: Callable[[], object], failures: list[StratalogError]) -> bool:
    """Call a function and keep its error; return whether it succeeded."""
    try:
        call()
    except StratalogError as error:
        failures.append(error)
        return False
    return True


def attempt_each(calls: Iterable[Callable[[], object]]) -> None:
    """Call all of them; then raise the first error, with a note that counts the others."""
    failures: list[StratalogError] = []
    for call in calls:
        attempt(call, failures)
    raise_first(failures)


def raise_first(failures: Sequence[StratalogError]) -> None:
    """Raise the first error, if there is one, with a note that counts the others."""
    if failures:
        if len(failures) > 1:
            failures[0].add_note(f"and {len(failures) - 1} more failed")
        raise failures[0]
