"""Running the command line in a test: in this process where that is enough, as a process where not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from stratalog.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    code: int
    out: bytes
    err: str

    def rows(self) -> list[Any]:
        """Of ``-o ndjson``."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: object, stdin: str | bytes | None = None) -> Run:
    """In this process; whatever is not an exit is a bug and raised."""
    result = CliRunner().invoke(main, [str(each) for each in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout_bytes, result.stderr)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "stratalog", *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM")}
    return {**kept, **changes}


def spawn(*arguments: object, **changes: str) -> Run:
    """As a process of its own."""
    done = subprocess.run(
        command(*arguments), capture_output=True, timeout=60, env=environment(**changes), cwd=ROOT
    )
    return Run(done.returncode, done.stdout, done.stderr.decode())
