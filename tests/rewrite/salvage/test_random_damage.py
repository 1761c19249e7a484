"""Random damage to logs of every format: what is intact survives, once and in order; the rest is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.rewrite.salvage.worlds import (
    KINDS,
    damage_world,
    duplicate_segment,
    make_world,
    salvage,
    seeds,
)


def check_case(folder: Path, kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    world = make_world(folder / "original", kind, rng)
    if kind.startswith("v2") and rng.random() < 0.1:
        duplicate_segment(world)
    damage_world(world, rng, rng.choice((0, 1, 1, 2, 3, 6)))
    world.store()
    salvage(world, folder / "target")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_intact_survives(tmp_path: Path, kind: str) -> None:
    for seed in range(3):
        check_case(tmp_path / str(seed), kind, seed)


@pytest.mark.proof
@pytest.mark.parametrize("part", range(10))
def test_what_is_intact_survives_a_thousand_damages(tmp_path: Path, part: int) -> None:
    """The same ones every time: of some damage nothing decides which of two batches is wrong."""
    for kind, seed in seeds(100 * (part + 1))[100 * part :]:
        check_case(tmp_path / f"{kind}-{seed}", kind, seed)
