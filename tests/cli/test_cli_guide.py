"""The guide and the README show what the commands really print."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli.runner import ROOT, Run, run

GUIDE = ROOT / "docs/guides/cli.md"
REWRITES = ROOT / "docs/guides/rewrites.md"
SALVAGE = ROOT / "docs/guides/salvage.md"
README = ROOT / "README.md"
BLOCKS = [
    block
    for page in (GUIDE, REWRITES, SALVAGE, README)
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if not block.startswith("$ make")
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][2:60])
def test_shown_output_is_true(block, monkeypatch, tmp_path):
    """In a folder of its own, where the golden files can be seen: what a block makes is not ours."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown = []
    code = 0
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        shown.append(line)
        if line == "$ echo $?":
            shown.append(str(code))
            continue
        done = run_pipe(line[2:])
        code = done.code
        shown += (done.out.decode() + done.err).splitlines()
    assert block.splitlines() == shown


def run_pipe(text: str) -> Run:
    """Programs with the output of one as the input of the next, as a shell would run them."""
    done = Run(0, b"", "")
    for part in re.split(r" \| (?=stratalog)", text):
        program, *arguments = shlex.split(part)
        if program == "printf":
            (format_,) = arguments
            done = Run(0, format_.encode().decode("unicode_escape").encode(), "")
        else:
            assert program == "stratalog"
            before, done = done, run(*arguments, stdin=done.out)
            done = Run(done.code, done.out, before.err + done.err)
    return done


def test_every_verb_and_exit_code_is_in_the_guide():
    text = GUIDE.read_text()
    assert len(BLOCKS) > 8
    for verb in ("cat", "count", "ls", "produce", "verify"):
        assert re.search(rf"^\$ (.* \| )?stratalog {verb} ", text, re.MULTILINE)
