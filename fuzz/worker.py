"""One process of a fuzzing run: one target, one way of finding inputs. ``fuzz.run`` starts it.

    python -m fuzz.worker mutate NAME SECONDS SEED STATE CORPUS     our own mutations
    python -m fuzz.worker atheris NAME SECONDS SEED STATE CORPUS    libFuzzer's, led by coverage
    python -m fuzz.worker once NAME FILE...                         each file once
    python -m fuzz.worker seeds NAME...                             seeds and kept corpus of targets, once
    python -m fuzz.worker growth NAME SECONDS                       does memory stay flat?
    python -m fuzz.worker shrink NAME FILE                          a smaller input that fails alike

STATE is a small file that always holds the input that is being tried and how many there were: it outlives a
process that a sanitizer ends. CORPUS is a folder; inputs that behave like none before are kept there.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from fuzz import targets
from fuzz.mutate import SIZE_MAX, mutate

POOL_MAX: Final = 3000
KINDS_MAX: Final = 5
RECENT_SHARE: Final = 0.3
GROWTH_MAX: Final = 8 << 20
SHRINK_SECONDS: Final = 20.0
_STATE: Final = struct.Struct("=QQQ")  # inputs, inputs kept, size of this one


class State:
    """The input at hand, in a file that is mapped: one copy each time, and no system call."""

    SIZE = _STATE.size + 2 * SIZE_MAX

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(self.SIZE)
            self._map = mmap.mmap(file.fileno(), self.SIZE)
        self.tried = 0
        self.kept = 0

    def put(self, data: bytes) -> None:
        size = min(len(data), self.SIZE - _STATE.size)
        self.tried += 1
        self._map[_STATE.size : _STATE.size + size] = data[:size]
        _STATE.pack_into(self._map, 0, self.tried, self.kept, size)

    @staticmethod
    def read(path: Path) -> tuple[int, int, bytes]:
        """(inputs tried, inputs kept, the last one)"""
        content = path.read_bytes() if path.exists() else b""
        if len(content) < _STATE.size:
            return 0, 0, b""
        tried, kept, size = _STATE.unpack_from(content)
        return tried, kept, content[_STATE.size : _STATE.size + size]


def quicken() -> None:
    """The twin's CRC-32C is a loop in Python and would take most of the time. A test of its own holds
    the two together; here the kernel's stands in for it."""
    from stratalog.records import _kernel
    from stratalog.records._reference import crc

    crc.crc32c = _kernel.crc32c


def file_name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def kind_of(error: BaseException) -> str:
    """What failed, and where: two inputs with the same answer found the same bug."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"


def mutate_for(name: str, seconds: float, seed: int, state_path: Path, corpus: Path) -> None:
    target = targets.load(name)
    rng = random.Random(seed)
    state = State(state_path)
    repair = getattr(target, "repair", None)
    pool = [*target.seeds(), *targets.kept_inputs(name)]
    found = [path.read_bytes() for path in sorted(corpus.glob("*"))]
    rng.shuffle(found)  # there may be more than there is time for
    pool += found
    seen: set[object] = set()
    failures: dict[str, str] = {}
    start = time.monotonic()
    waiting = iter(list(pool))
    while (spent := time.monotonic() - start) < seconds and len(failures) < KINDS_MAX:
        fresh = next(waiting, None) if spent < seconds / 2 else None
        if fresh is not None:
            data = fresh
        elif rng.random() < RECENT_SHARE:
            data = mutate(rng, pool[-50:], repair)
        else:
            data = mutate(rng, pool, repair)
        state.put(data)
        try:
            answer = target.one_input(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the find
            kind = kind_of(error)
            if kind not in failures:
                failures[kind] = data.hex()
                traceback.print_exc()
            continue
        if answer is not None and answer not in seen:
            seen.add(answer)
            if fresh is None and len(pool) < POOL_MAX:
                pool.append(data)
                state.kept += 1
                (corpus / file_name(data)).write_bytes(data)
    print(json.dumps(failures))


def atheris_for(name: str, seconds: int, seed: int, state_path: Path, corpus: Path) -> None:
    """libFuzzer sees which Python code runs, the reference's above all, and not into the kernel: what
    it finds new there is a new path of the specification, and the kernel is held against that."""
    import atheris

    with atheris.instrument_imports(include=["stratalog.records"]):
        target = targets.load(name)
        quicken()
    repair = getattr(target, "repair", None)
    pool = [*target.seeds(), *targets.kept_inputs(name)]
    for data in pool:
        (corpus / file_name(data)).write_bytes(data)
    state = State(state_path)

    def one_input(data: bytes) -> None:
        state.put(data)
        target.one_input(data)

    def mutator(data: bytes, size_max: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            data = bytes(atheris.Mutate(data, size_max))
            return repair(data)[:size_max] if repair and rng.random() < 0.7 else data
        return mutate(rng, [data, data, rng.choice(pool)], repair)[:size_max]

    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={SIZE_MAX}",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-verbosity=0",
        f"-artifact_prefix={state_path.parent}/",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], one_input, custom_mutator=mutator)
    atheris.Fuzz()


def once(name: str, paths: list[Path]) -> None:
    target = targets.load(name)
    for path in paths:
        print(f"{path}: {target.one_input(path.read_bytes())!r}")


def all_seeds(names: list[str]) -> None:
    tried = 0
    for name in names:
        target = targets.load(name)
        for data in [*target.seeds(), *targets.kept_inputs(name)]:
            target.one_input(data)
            tried += 1
    print(json.dumps({"inputs": tried}))


def growth(name: str, seconds: float) -> None:
    """The same inputs over and over: after a third of the time memory must not grow any more."""
    target = targets.load(name)
    pool = [*target.seeds(), *targets.kept_inputs(name)]
    start = time.monotonic()
    settled = passes = 0
    while (spent := time.monotonic() - start) < seconds:
        for data in pool:
            target.one_input(data)
        passes += 1
        if not settled and spent > seconds / 3:
            settled = resident_bytes()
    grown = max(0, resident_bytes() - settled) if settled else 0
    print(json.dumps({"inputs": passes * len(pool), "grown": grown}))
    sys.exit(grown > GROWTH_MAX)


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * mmap.PAGESIZE


def shrink(name: str, path: Path) -> None:
    """Leave out and zero what the failure does not need. Each try has a process of its own, as the
    failure may be one that ends it."""
    target = targets.load(name)
    data = path.read_bytes()
    wanted = outcome(target, data)
    if wanted == "0":
        print(json.dumps({"kind": "does not fail any more"}))
        return
    end = time.monotonic() + SHRINK_SECONDS

    def fails(candidate: bytes) -> bool:
        return time.monotonic() < end and outcome(target, candidate) == wanted

    size = max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            zeroed = data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
            if len(shorter) < len(data) and fails(shorter):
                data = shorter
            elif zeroed != data and fails(zeroed):
                data = zeroed
                at += size
            else:
                at += size
        size //= 2
    path.write_bytes(data)
    print(json.dumps({"kind": wanted, "size": len(data)}))


def outcome(target: ModuleType, data: bytes) -> str:
    """How one input ends, in a child process: what it raises, or how the process ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        try:
            target.one_input(data)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001
            os.write(writer, kind_of(error).encode())
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return words or str(status)


def main(arguments: list[str]) -> None:
    mode, *rest = arguments
    commands: dict[str, Callable[..., Any]] = {
        "mutate": lambda name, seconds, seed, state, corpus: mutate_for(
            name, float(seconds), int(seed), Path(state), Path(corpus)
        ),
        "atheris": lambda name, seconds, seed, state, corpus: atheris_for(
            name, int(float(seconds)), int(seed), Path(state), Path(corpus)
        ),
        "once": lambda name, *paths: once(name, [Path(path) for path in paths]),
        "seeds": lambda *names: all_seeds(list(names)),
        "growth": lambda name, seconds: growth(name, float(seconds)),
        "shrink": lambda name, path: shrink(name, Path(path)),
    }
    if mode not in ("atheris", "once"):
        quicken()
    commands[mode](*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
