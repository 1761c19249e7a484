"""Several things to do, of which one that fails must not keep the others from being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.errors import StratalogError

__all__ = ["attempt", "attempt_each"]


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
    if failures:
        if len(failures) > 1:
            failures[0].add_note(f"and {len(failures) - 1} more failed")
        raise failures[0]
