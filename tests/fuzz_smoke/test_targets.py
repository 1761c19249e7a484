"""Every fuzz target runs, on the ordinary kernel: its seeds, the kept corpus, and a few hundred mutations
that are the same every time. ``make fuzz`` does the same for longer, under sanitizers."""

from __future__ import annotations

import random

import pytest

from fuzz import targets
from fuzz.mutate import mutate

MUTATIONS = 200


@pytest.mark.parametrize("name", targets.names())
def test_target_survives_seeds_corpus_and_mutations(name: str) -> None:
    target = targets.load(name)
    pool = [*target.seeds(), *targets.kept_inputs(name)]
    assert len(pool) > 5
    for data in pool:
        target.one_input(data)
    rng = random.Random(name)
    for number in range(MUTATIONS):
        data = mutate(rng, pool, getattr(target, "repair", None))
        try:
            target.one_input(data)
        except Exception as error:
            error.add_note(f"mutation {number} of {name}: {data.hex()}")
            raise


@pytest.mark.parametrize("name", targets.names())
def test_target_takes_empty_and_tiny_inputs(name: str) -> None:
    target = targets.load(name)
    for size in range(30):
        target.one_input(bytes(size))
        target.one_input(b"\xff" * size)
