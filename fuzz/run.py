"""``make fuzz``: the kernel under sanitizers, every target under our mutations and under atheris.

In this order, as each feeds the next. Atheris finds inputs by the coverage of Python code: the reference and
the codecs; it cannot see into the kernel, which runs beside as it is shipped. Then the kernel's tests, all
inputs found so far and our own mutations of them run on a kernel with AddressSanitizer and UBSan. Then a look
for leaks. What cannot run here says so and is marked as skipped. A crash is saved, shrunk, and fails the run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fuzz import sanitize, targets
from fuzz.sanitize import ROOT, Sanitized, UnavailableError
from fuzz.worker import State, file_name

SECONDS_DEFAULT: Final = 7.0
SECONDS_START: Final = 15.0  # a process needs some of its own
SECONDS_HANG: Final = 60.0
DEATHS_MAX: Final = 3
FOUND: Final = ROOT / "build" / "fuzz"
SANITIZED_TESTS: Final = (
    "tests/records/test_kernel_agrees_with_reference.py",
    "tests/records/test_record_checks.py",
    "tests/records/test_index_rules.py",
    "tests/records/test_replay_rows.py",
    "tests/records/test_offset_map.py",
    "tests/records/test_batch_filter.py",
    "tests/records/test_compression.py",
    "tests/regressions",
    "tests/fuzz_smoke",
)
LINES_SHOWN: Final = 25
INTERPRETER: Final = re.compile(
    r"^ *#\d+ .* in .*\b(Python|Objects|Modules|Include|csu|nptl)/|\bin _start\b"
)


@dataclass
class Line:
    """One line of the table."""

    what: str
    lane: str
    inputs: int = 0
    seconds: float = 0.0
    kept: int = 0
    crashes: int = 0
    skipped: str = ""
    files: list[Path] = field(default_factory=list)


class Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self.names: list[str] = options.only or targets.names()
        self.seconds: float = options.seconds
        self.seed: int = options.seed
        self.lines: list[Line] = []
        self.sanitized: Sanitized | None = None
        self.without = "--no-sanitizers" if options.no_sanitizers else ""
        self.with_tests = not options.only

    def everything(self) -> int:
        self.prepare()
        self.atheris()
        if self.with_tests:
            self.tests()
        for name in self.names:
            self.mutations(name)
        self.leaks()
        self.growth()
        return self.report()

    def prepare(self) -> None:
        if self.without:
            return
        try:
            self.sanitized = sanitize.build()
        except UnavailableError as error:
            self.without = str(error)
            print(f"no sanitizers: {error}", file=sys.stderr)

    def environment(self) -> dict[str, str] | None:
        return None if self.sanitized is None else self.sanitized.environment()

    def atheris(self) -> None:
        why = atheris_missing()
        for name in self.names:
            line = Line(name, "atheris", skipped=why)
            self.lines.append(line)
            if not why:
                self.fuzz(line, "atheris", None)

    def mutations(self, name: str) -> None:
        line = Line(name, "mutations" if self.sanitized is None else "mutations, sanitized")
        self.lines.append(line)
        self.fuzz(line, "mutate", self.environment())

    def fuzz(self, line: Line, mode: str, environment: dict[str, str] | None) -> None:
        """Run one worker until the time is over; where a crash ends it, another goes on."""
        start = time.monotonic()
        corpus = FOUND / "corpus" / line.what
        corpus.mkdir(parents=True, exist_ok=True)
        state = FOUND / f"{line.what}.{mode}.state"
        deaths = 0
        while (left := self.seconds - (time.monotonic() - start)) > 0.5 or deaths == 0:
            state.unlink(missing_ok=True)
            seed = str(self.seed + deaths)
            words = ["mutate" if mode == "mutate" else "atheris", line.what, f"{max(left, 1):.1f}"]
            code, output = watch([*words, seed, str(state), str(corpus)], state, environment, left)
            tried, kept, last = State.read(state)
            line.inputs += tried
            line.kept += kept
            if code == 0:
                for data in failures_of(output) if mode == "mutate" else []:
                    self.crash(line, data, environment, output)
                break
            deaths += 1
            self.crash(line, last, environment, output)
            if deaths == DEATHS_MAX:
                break
        line.seconds = time.monotonic() - start

    def crash(
        self, line: Line, data: bytes, environment: dict[str, str] | None, output: str
    ) -> None:
        targets.CRASHES.mkdir(exist_ok=True)
        path = targets.CRASHES / f"{line.what}-{file_name(data)}"
        path.write_bytes(data)
        line.crashes += 1
        print(f"\n{line.what} ({line.lane}) failed:", file=sys.stderr)
        print(*interesting(output), sep="\n", file=sys.stderr)
        code, words = worker(["shrink", line.what, str(path)], environment)
        facts = words.splitlines()[-1] if code == 0 and words else "could not be shrunk"
        line.files.append(path)
        print(f"saved: {path.relative_to(ROOT)} {facts}", file=sys.stderr)

    def tests(self) -> None:
        line = Line("tests", "sanitized", skipped=self.without)
        self.lines.append(line)
        if self.sanitized is None:
            return
        start = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=600"]
            + ["--capture=sys"]  # a sanitizer's last words go to the real standard error
            + [path for path in SANITIZED_TESTS if (ROOT / path).exists()],
            cwd=ROOT,
            env=self.sanitized.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        line.seconds = time.monotonic() - start
        passed = re.search(r"(\d+) passed", run.stdout)
        line.inputs = int(passed.group(1)) if passed else 0
        if run.returncode:
            line.crashes = 1
            print(*interesting(run.stdout + run.stderr, 80), sep="\n", file=sys.stderr)

    def leaks(self) -> None:
        """LeakSanitizer over the seeds; what CPython itself keeps to its end is not ours."""
        line = Line("leaks", "seeds, sanitized", skipped=self.without)
        self.lines.append(line)
        if self.sanitized is None:
            return
        start = time.monotonic()
        code, output = worker(["seeds", *self.names], self.sanitized.environment(leaks=True))
        line.seconds = time.monotonic() - start
        count = re.search(r'{"inputs": (\d+)}', output)
        line.inputs = int(count.group(1)) if count else 0
        records = re.split(r"\n(?=(?:Direct|Indirect) leak of )", output)
        ours = [record for record in records[1:] if "_kernel" in record]
        finished = code == 0 or len(records) > 1
        if "LeakSanitizer has encountered a fatal error" in output:
            line.skipped = "LeakSanitizer may not trace processes here"
        elif ours or not finished:
            line.crashes = len(ours) or 1
            print(*interesting(ours[0] if ours else output), sep="\n", file=sys.stderr)

    def growth(self) -> None:
        for name in self.names:
            line = Line(name, "memory stays flat")
            self.lines.append(line)
            if not Path("/proc/self/statm").exists():
                line.skipped = "no /proc here"
                continue
            line.seconds = self.seconds / 4
            code, output = worker(["growth", name, str(line.seconds)], None)
            try:
                line.inputs = json.loads(output.splitlines()[-1])["inputs"]
            except (ValueError, IndexError, TypeError, KeyError):
                code = code or 1
            if code:
                line.crashes = 1
                print(*interesting(output), sep="\n", file=sys.stderr)

    def report(self) -> int:
        print(f"\n{'what':10} {'how':22} {'inputs':>9} {'seconds':>8} {'kept':>5}  crashes")
        for line in self.lines:
            if line.skipped:
                print(f"{line.what:10} {line.lane:22} skipped: {line.skipped.splitlines()[0]}")
            else:
                numbers = f"{line.inputs:9} {line.seconds:8.1f} {line.kept:5}  {line.crashes}"
                print(f"{line.what:10} {line.lane:22} {numbers}")
        if self.sanitized is None:
            print(f"SKIPPED: AddressSanitizer and UBSan ({self.without.splitlines()[0]})")
        files = dict.fromkeys(path for line in self.lines for path in line.files)
        for path in files:
            print(f'replay: make fuzz ARGS="--replay {path.relative_to(ROOT)}"')
        return int(any(line.crashes for line in self.lines))


def atheris_missing() -> str:
    """Why atheris cannot run, or nothing."""
    if importlib.util.find_spec("atheris") is None:
        return "atheris is not installed (wheels exist for Linux on x86-64)"
    run = subprocess.run(
        [sys.executable, "-c", "import atheris"], capture_output=True, text=True, check=False
    )
    return "" if run.returncode == 0 else f"atheris does not load: {run.stderr.strip()[-80:]}"


def worker(words: list[str], environment: dict[str, str] | None) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-m", "fuzz.worker", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return run.returncode, run.stderr + run.stdout


def watch(
    words: list[str], state: Path, environment: dict[str, str] | None, seconds: float
) -> tuple[int, str]:
    """Run a worker; one that tries the same input for a minute hangs, and is ended."""
    log = state.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", *words],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=file,
        )
        tried, since = -1, time.monotonic()
        end = since + seconds + SECONDS_START
        try:
            while process.poll() is None:
                time.sleep(0.05)
                now, _, _ = State.read(state)
                if now != tried:
                    tried, since = now, time.monotonic()
                    end = max(end, since)
                elif time.monotonic() > max(end, since + SECONDS_HANG):
                    process.kill()
                    process.wait()
                    file.write(f"one input took more than {SECONDS_HANG:.0f} seconds\n")
        except BaseException:
            process.kill()
            process.wait()
            raise
    return process.returncode, log.read_text(errors="replace")


def failures_of(output: str) -> list[bytes]:
    """The inputs that a worker reported on its last line."""
    return [bytes.fromhex(data) for data in json.loads(output.splitlines()[-1]).values()]


def interesting(output: str, lines_max: int = LINES_SHOWN) -> list[str]:
    """The part of an output that says what is wrong: from a sanitizer's first word on, or its end."""
    lines = [line[:300] for line in output.splitlines() if not INTERPRETER.search(line)]
    for number, line in enumerate(lines):
        if "ERROR: AddressSanitizer" in line or "runtime error:" in line:
            return lines[number : number + lines_max]
    return lines[-lines_max:]


def replay(path: Path, names: list[str] | None, sanitized: Sanitized | None) -> int:
    name = names[0] if names else path.name.partition("-")[0]
    if name not in targets.names():
        name = path.resolve().parent.name
    if name not in targets.names():
        print(f"which target? --only names one of {', '.join(targets.names())}", file=sys.stderr)
        return 2
    environment = None if sanitized is None else sanitized.environment()
    kernel = "the ordinary kernel" if sanitized is None else "the sanitized kernel"
    code, output = worker(["once", name, str(path.resolve())], environment)
    print(output, end="")
    print(f"{name} with {kernel}: {'no failure' if code == 0 else 'FAILED'}")
    return int(code != 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS_DEFAULT, help="per target and way")
    parser.add_argument("--only", action="append", choices=targets.names(), help="this target")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--no-sanitizers", action="store_true", help="the ordinary kernel only")
    parser.add_argument("--replay", type=Path, help="try one saved input and show what happens")
    options = parser.parse_args()
    run = Run(options)
    if options.replay is not None:
        if not options.replay.is_file():
            parser.error(f"no file {options.replay}")
        run.prepare()
        return replay(options.replay, options.only, run.sanitized)
    return run.everything()


if __name__ == "__main__":
    sys.exit(main())
