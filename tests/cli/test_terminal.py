"""On a terminal: tables, nothing that could harm it, colours only where wanted, progress that goes away."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from stratalog.cli.table import fitted
from stratalog.cli.terminal import cut, display_width, pad, printable
from stratalog.records.builder import build_batch
from stratalog.records.model import Record, RecordHeader
from tests.cli.runner import command, run
from tests.cli.terminal import on_terminal
from tests.inspect.logs import segment
from tests.judges.peers.golden import golden_set

SEGMENTS = golden_set("v2-headers-and-nulls").partitions()[0].segments
HOSTILE = "a\x1b[2J\x07\r\n\t\x9b31m\x7f\u202egnp\u2066\u200b\u2028\ufeff"


@pytest.fixture
def hostile(tmp_path) -> str:
    record = Record(
        value=HOSTILE.encode() + b"\xff\xfe\x80",
        key=HOSTILE.encode(),
        headers=(RecordHeader(HOSTILE, HOSTILE.encode()),),
        timestamp=2**62,
    )
    return segment(tmp_path, 0, build_batch([record]))


def test_nothing_that_moves_the_cursor_reaches_a_terminal(hostile):
    done = run("cat", "-o", "table", hostile)
    text = done.out.decode()
    assert text.count("\n") == 2
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "a\\x1b[2J" in text
    screen = on_terminal("cat", hostile, NO_COLOR="1", COLUMNS="400")
    assert screen.code == 0
    assert all(char.isprintable() or char == "\n" for char in screen.out.decode())
    assert "\\xff\\xfe\\x80" in screen.out.decode()


def test_escapes_are_readable():
    assert printable("plain ü 日本") == "plain ü 日本"
    assert printable("\x00\n\r\t\x1b\x9b") == "\\x00\\n\\r\\t\\x1b\\x9b"
    assert printable("\u202e\u2066\U000e0001") == "\\u202e\\u2066\\U000e0001"
    assert printable(b"\xff\xc3".decode("utf-8", "surrogateescape")) == "\\xff\\xc3"
    for code in range(0x3000):
        shown = printable(chr(code))
        assert shown.isprintable()
        assert unicodedata.category(chr(code)) not in ("Cc", "Cf", "Zl", "Zp") or len(shown) > 1


def test_table_is_the_default_on_a_terminal_and_ndjson_elsewhere():
    screen = on_terminal("cat", "-n", "1", *SEGMENTS, NO_COLOR="1")
    assert screen.out.startswith(b"topic  ")
    assert run("cat", "-n", "1", *SEGMENTS).out.startswith(b'{"topic": ')


def test_binary_output_to_a_terminal_is_refused():
    for output in ("parquet", "arrow"):
        screen = on_terminal("cat", "-o", output, *SEGMENTS)
        assert screen.code == 2
        assert "--out" in screen.err
        assert screen.out == b""


def test_colour_only_where_it_is_wanted():
    arguments = ("count", *SEGMENTS)
    assert b"\x1b[1m" in on_terminal(*arguments).out
    assert b"\x1b" not in on_terminal(*arguments, NO_COLOR="1").out
    assert b"\x1b" not in on_terminal(*arguments, TERM="dumb").out
    assert b"\x1b" not in run(*arguments, "-o", "table").out


@pytest.mark.parametrize("columns", [60, 100, 140])
def test_lines_fit_the_terminal_while_bytes_can_give_way(columns):
    screen = on_terminal(
        "cat", "--columns", "offset,key,value", *SEGMENTS, NO_COLOR="1", COLUMNS=str(columns)
    )
    lines = screen.out.decode().splitlines()
    assert len(lines) == 84
    assert max(map(display_width, lines)) <= columns
    assert any("…" in line for line in lines)
    starts = {display_width(line[: line.index("  ")]) for line in lines[:1]}
    assert starts == {len("offset")}


def test_columns_are_aligned():
    lines = run("count", "-o", "table", *SEGMENTS).out.decode().splitlines()
    assert len(lines) == len(SEGMENTS) + 2
    end = lines[0].index("records") + len("records")
    assert all(line[end - 1].isdigit() for line in lines[1:])
    assert lines[-1].startswith("total")
    total = int(lines[-1][:end].split()[-1])
    assert total == len(golden_set("v2-headers-and-nulls").expected())


def test_widths_give_way_from_the_widest():
    assert fitted([5, 80, 40], [False, True, True], 130) == [5, 80, 40]
    assert fitted([5, 80, 40], [False, True, True], 69) == [5, 30, 30]
    assert fitted([50, 80, 5], [False, True, True], 40) == [50, 12, 5]


def test_cut_and_pad_count_cells():
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("abcdef", 4) == "abc…"
    assert pad("日", 4) == "日  "
    assert pad("日", 4, right=True) == "  日"
    assert display_width("e\u0301") == 1


SLOW = """
import sys, time
from stratalog.cli import reporter
from stratalog.storage.segment import log_file
log_file.MAPPED_SIZE = 4 << 20
reporter._PROGRESS_AFTER_SECONDS = {after}
reporter._PROGRESS_EVERY_SECONDS = 0
from stratalog.cli.main import main
sys.argv = {arguments}
main()
"""


def slow_program(after: float, *arguments: object) -> list[str]:
    _, _, _, *rest = command(*arguments)
    return [sys.executable, "-c", SLOW.format(after=after, arguments=["stratalog", *rest])]


@pytest.mark.parametrize("verb", ["cat", "count", "ls", "verify"])
def test_progress_shows_on_stderr_and_is_erased(tmp_path, verb):
    from tests.inspect.logs import batch

    path = segment(tmp_path, 0, b"".join(batch(3 * n, size=20_000) for n in range(300)))
    shown = on_terminal(program=slow_program(0, verb, path), stdout=False)
    assert "iB/s" in shown.err
    assert "of 17.2 MiB" in shown.err
    assert shown.err.endswith("\r\x1b[K")
    quick = on_terminal(program=slow_program(60, verb, path), stdout=False)
    assert quick.err == ""
    assert run(verb, path).err == ""
