"""The guide and the README show what the commands really print."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli.runner import ROOT, run

GUIDE = ROOT / "docs/guides/cli.md"
README = ROOT / "README.md"
BLOCKS = [
    block
    for page in (GUIDE, README)
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if not block.startswith("$ make")
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][2:60])
def test_shown_output_is_true(block, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    shown = []
    code = 0
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        shown.append(line)
        program, *arguments = shlex.split(line[2:])
        if program == "echo":
            shown.append(str(code))
            continue
        assert program == "stratalog"
        done = run(*arguments)
        code = done.code
        shown += (done.out.decode() + done.err).splitlines()
    assert block.splitlines() == shown


def test_every_verb_and_exit_code_is_in_the_guide():
    text = GUIDE.read_text()
    assert len(BLOCKS) > 8
    for verb in ("cat", "count", "ls", "verify"):
        assert f"$ stratalog {verb} " in text
