"""The names in a folder say whether a swap of segments was decided, and what must go."""

from __future__ import annotations

import pytest

from stratalog.storage.replace.folder import FolderNames, plan_swaps, plan_unfinished
from tests.storage.logs import name

KINDS = (".log", ".index", ".timeindex", ".txnindex")


def segment(base: int, stage: str = "", kinds: tuple[str, ...] = KINDS) -> list[str]:
    return [name(base, kind + stage) for kind in kinds]


def left(names: list[str]) -> list[str]:
    """The names after the plan, however often the process dies while it is carried out."""
    plan = plan_unfinished(FolderNames.of(names))
    settled = sorted(set(names) - set(plan.delete))
    for count in range(len(plan.delete)):
        after = [each for each in names if each not in plan.delete[:count]]
        again = plan_unfinished(FolderNames.of(after))
        assert sorted(set(after) - set(again.delete)) == settled
    return settled


LIVE = segment(0) + segment(5)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        pytest.param(
            LIVE + segment(0, ".cleaned") + segment(5, ".swap"), LIVE, id="as-in-kafka-undecided"
        ),
        pytest.param(
            LIVE + segment(0, ".cleaned") + segment(5, ".swap") + segment(5, ".deleted"),
            LIVE,
            id="undecided-after-an-earlier-swap",
        ),
        pytest.param(
            LIVE + segment(0, ".cleaned") + segment(3, ".swap"), LIVE, id="undecided-split"
        ),
        pytest.param(
            segment(0) + segment(5, ".swap") + segment(5, ".deleted"),
            segment(0) + segment(5, ".swap"),
            id="as-in-kafka-decided",
        ),
        pytest.param(
            segment(0) + segment(0, ".cleaned") + segment(5, ".swap") + segment(5, ".deleted"),
            segment(0) + segment(5, ".swap"),
            id="decided-with-a-cleaned-below",
        ),
        pytest.param(
            segment(0) + segment(0, ".cleaned") + segment(5, ".swap")
            + [name(5, ".log.deleted"), *segment(5, "", KINDS[1:])],
            segment(0) + segment(5, ".swap") + segment(5, "", KINDS[1:]),
            id="decided-when-the-first-data-file-was-renamed",
        ),
        pytest.param(
            [*LIVE[:-1], name(5, ".txnindex.swap"), *segment(0, ".cleaned"), *segment(5, ".deleted")],
            [*LIVE[:-1], name(5, ".txnindex.swap")],
            id="decided-with-one-index-to-go",
        ),
        pytest.param(
            segment(0) + segment(0, ".cleaned") + segment(5, ".swap") + segment(8, ".swap")
            + segment(5, ".deleted"),
            segment(0) + segment(5, ".swap") + segment(8, ".swap"),
            id="decided-for-one-is-decided-for-all",
        ),
        pytest.param(
            [*LIVE, name(5, ".log.cleaned"), name(5, ".index.swap"), *segment(5, ".deleted")],
            LIVE,
            id="undone-half-way",
        ),
    ],
)  # fmt: skip
def test_a_swap_is_dropped_only_if_the_old_segments_are_there(
    names: list[str], kept: list[str]
) -> None:
    assert left(names) == sorted(kept)


def test_a_decided_swap_gets_its_final_names() -> None:
    names = segment(0) + segment(0, ".cleaned") + segment(5, ".swap") + segment(5, ".deleted")
    found = FolderNames.of(names)
    swept = found.without(plan_unfinished(found))
    assert sorted(swept.without(plan_swaps(swept, 5, 9)).files) == sorted(LIVE)
