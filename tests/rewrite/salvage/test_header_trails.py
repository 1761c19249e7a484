"""Headers that are read in slices say together what they say if they are read at once."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stratalog.rewrite.salvage.header_facts import LocalHeaders, join_trails, read_trail
from stratalog.rewrite.salvage.kept_batches import single_batches
from stratalog.rewrite.salvage.plan import SalvageOptions, find_input, plan_salvage
from stratalog.rewrite.salvage.runs import Run
from tests.rewrite.salvage.worlds import FILES, damage_world, make_world, seeds
from tests.scale import fresh, sized

KINDS = ("v2-transactions", "v2-mixed", "v2-compacted", "v1-mixed", "mixed")


def slices(runs: Sequence[Run], rng: random.Random) -> Iterator[Sequence[Run]]:
    at = 0
    while at < len(runs):
        count = rng.randrange(1, 6)
        yield runs[at : at + count]
        at += count


@pytest.mark.scaled
@pytest.mark.parametrize(("kind", "seed"), seeds(sized(20, 200), KINDS))
def test_slices_say_together_what_all_say(tmp_path: Path, kind: str, seed: int) -> None:
    rng = random.Random(fresh(seed))
    world = make_world(tmp_path, kind, rng)
    damage_world(world, rng, seed % 4)
    world.store()
    sources = find_input(FILES, str(world.partition), SalvageOptions()).sources
    kept = plan_salvage(FILES, str(world.partition)).kept
    batches = [each for run in kept for each in single_batches(FILES, sources[run.source], run)]
    trails = []
    for part in slices(batches, rng):
        needed = {run.source: sources[run.source] for run in part}
        trails.append(pickle.loads(pickle.dumps(read_trail(FILES, needed, part))))
    assert join_trails(trails) == LocalHeaders(FILES, sources).read(kept)
