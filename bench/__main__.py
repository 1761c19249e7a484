"""``python -m bench``: measure, print the table, write the JSON, and judge under --check."""

from __future__ import annotations

import argparse
import compileall
import sys
from fnmatch import fnmatch
from pathlib import Path

from bench import harness, report


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--only", metavar="PATTERN", help="cases whose name contains this (* and ? work)"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and measure nothing")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="interleaved rounds (7; 3 with --quick)"
    )
    parser.add_argument("--quick", action="store_true", help="smaller data, fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="bench/results/latest.json unless told"
    )
    options = parser.parse_args(arguments)
    rounds = options.rounds if options.rounds is not None else (3 if options.quick else 7)
    if rounds < 1:
        parser.error("--rounds is at least 1")

    found = harness.discover().values()
    cases = [each for each in found if fnmatch(each.name, f"*{options.only or ''}*")]
    if not cases:
        parser.error(
            f"no case matches {options.only!r}" if options.only else "there are no cases yet"
        )
    if options.list:
        for each in cases:
            bar = "no bar" if each.bar is None else each.bar.text(each.unit)
            print(f"{each.name}: {each.work} ({bar}{f', {each.peer}' if each.peer else ''})")
        return 0

    # As what is installed is: a start that compiles what was just edited is nobody's.
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)
    facts = report.machine()
    results = harness.run_cases(cases, rounds=rounds, quick=options.quick)
    print(f"{facts['cpu']}, {facts['cores']} cores, {facts['python']}, median of {rounds} rounds\n")
    print(report.table(results))
    target = options.json or Path(__file__).parent / "results" / "latest.json"
    facts |= {"rounds": rounds, "quick": options.quick}
    report.write_json(target, results, facts)
    return harness.exit_code(results, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
