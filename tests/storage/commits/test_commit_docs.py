"""docs/formats/commit-journal.md: its example says what stands beside it, line for line what the code writes;
its names and fields are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from stratalog.storage import names
from stratalog.storage.commits.journal import decode_journal
from stratalog.storage.commits.records import decode_line, encode_line
from stratalog.storage.commits.visibility import hidden_between
from stratalog.storage.names import PieceName, PieceStage, piece_file_name

DOCS: Final = Path(__file__).resolve().parents[3] / "docs" / "formats"
PAGE: Final = (DOCS / "commit-journal.md").read_text(encoding="utf-8")


def block(kind: str, what: str) -> str:
    found = re.search(
        rf"^```{kind} {what}=commit-journal\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def test_the_example_says_what_stands_beside_it():
    data = block("text", "example").encode()
    expect = json.loads(block("json", "expect"))
    state = decode_journal(data)
    assert (state.generation, state.last_number) == (expect["generation"], expect["last_number"])
    assert [each.intent.number for each in state.open] == expect["open"]
    assert sorted(state.done) == expect["done"]
    assert dict(state.highest) == expect["highest"]
    before = decode_journal(b"".join(data.splitlines(keepends=True)[:-1]))
    assert [each.intent.number for each in before.open] == expect["without_the_last_line"]["open"]
    hidden = hidden_between(before, state)
    assert hidden is not None
    assert [[*place, end] for place, end in hidden.items()] == expect["without_the_last_line"][
        "hidden"
    ]


def test_the_code_writes_the_example_line_for_line():
    for line in block("text", "example").encode().splitlines(keepends=True):
        record = decode_line(line[:-1])
        assert record is not None
        assert encode_line(record) == line


def test_the_table_names_every_field_of_the_example():
    rows = re.findall(r"^\| (\S*|) ?\| (.+?) \|", PAGE.split("## The journal")[1], re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(f"{kind} {fields}" for kind, fields in rows)))
    named |= set(re.findall(r"`(\w+)`", PAGE.split("## The journal")[1]))
    for line in block("text", "example").splitlines():
        document = json.loads(line.partition(" ")[2])
        assert document.pop("type") in named
        assert document.keys() <= named


def test_names_are_those_of_the_code():
    listed = re.findall(r"^\| `(\S+)` \|", PAGE.split("## A piece")[0], re.MULTILINE)
    pieces = [piece_file_name(PieceName("<owner>", 1, 2, 3, 4, stage)) for stage in PieceStage]
    generic = [
        pieces[0].replace("1.2.3.4", "<version>.<task>.<attempt>.<number>"),
        *(f"stratalog-piece.…{stage.value}" for stage in PieceStage if stage.value),
    ]
    assert listed == [*generic, names.STRATALOG_COMMITS, names.STRATALOG_COMMITS_UNSYNCED]


def test_page_is_plain_markdown():
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert max(map(len, prose.splitlines())) <= 120
    assert not re.search(r"[ \t]$", PAGE, re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        assert (DOCS / target).is_file(), target
