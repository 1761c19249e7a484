"""Salvage: finding what is intact around a thousand damaged places, and copying it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.harness import Bar, Setup, Workload, case
from bench.logs import calm, write_log
from stratalog.inspect.verify import verify_file
from stratalog.rewrite.salvage.directory import write_directory
from stratalog.rewrite.salvage.plan import plan_salvage
from stratalog.storage.files.filesystem import OsFileSystem

GIB = 1 << 30
DAMAGED_PLACES = 1000
BLOCK = 4096
FILES = OsFileSystem()


def segment(setup: Setup) -> Path:
    """A segment of 1 GiB in batches of about 16 KiB, in the page cache."""
    path, _ = write_log(setup.folder, setup.scaled(GIB), value_size=100, records_per_batch=150)
    return path


def damage(path: Path, setup: Setup, content: Callable[[random.Random], bytes], align: int) -> None:
    """Overwrite a thousand places, far enough from the beginning of the file."""
    rng = random.Random(17)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(setup.scaled(DAMAGED_PLACES)):
            file.seek(rng.randrange(BLOCK, size - BLOCK) // align * align)
            file.write(content(rng))


@case(
    "salvage-1g",
    work="plan the salvage of 1 GiB with 1,000 damaged batches",
    unit="B/s",
    peer="verify of the same file",
    bar=Bar(ratio=0.5),
)
def salvage_values(setup: Setup) -> Workload:
    path = segment(setup)
    # Inside records: verify goes on after each of them, too.
    damage(path, setup, lambda rng: rng.randbytes(1), 1)
    return Workload(
        ours=lambda: plan_salvage(FILES, str(path.parent)),
        peer=lambda: verify_file(str(path), findings_max=10 * DAMAGED_PLACES),
        amount=path.stat().st_size,
    )


@case(
    "salvage-1g-blocks",
    work="plan the salvage of 1 GiB with 1,000 blocks of 4 KiB overwritten",
    unit="B/s",
    peer="verify of the file before it was damaged",
    bar=Bar(ratio=0.5),
)
def salvage_blocks(setup: Setup) -> Workload:
    path = segment(setup)
    sound = setup.folder / "sound-0" / path.name
    sound.parent.mkdir()
    shutil.copyfile(path, sound)
    damage(path, setup, lambda rng: rng.randbytes(BLOCK), BLOCK)
    return Workload(
        ours=lambda: plan_salvage(FILES, str(path.parent)),
        peer=lambda: verify_file(str(sound)),
        amount=path.stat().st_size,
    )


@case(
    "salvage-1g-write",
    work="salvage 1 GiB with 1,000 damaged batches into a new directory, fsynced",
    unit="B/s",
    peer="copying the file, fsynced",
    pinned=False,
    rounds_max=3,
)
def salvage_write(setup: Setup) -> Workload:
    path = segment(setup)
    damage(path, setup, lambda rng: rng.randbytes(1), 1)
    target, copy = setup.folder.with_name(f"{setup.folder.name}-new"), setup.folder / "copy"
    setup.cleanup.callback(shutil.rmtree, target, ignore_errors=True)

    def before() -> None:
        shutil.rmtree(target, ignore_errors=True)
        copy.unlink(missing_ok=True)
        calm(setup.folder, path.stat().st_size)

    def ours() -> None:
        write_directory(FILES, [plan_salvage(FILES, str(path.parent))], str(target))

    def plain() -> None:
        shutil.copyfile(path, copy)
        file = FILES.open_writable(str(copy))
        file.sync()
        file.close()

    return Workload(ours=ours, peer=plain, amount=path.stat().st_size, before=before)
