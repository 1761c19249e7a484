"""Every help text has a complete summary, and examples that run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import stratalog
from stratalog.cli.examples import WithExamples
from stratalog.cli.main import VERBS, main
from tests.cli.runner import run
from tests.cli.test_cli_guide import run_pipe


def commands(
    group: click.Group = main,
    *names: str,
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return every command below a group, with the words that call it."""
    context = click.Context(group)
    yield names, group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


ALL = list(commands())
IDS = [" ".join(names) or "stratalog" for names, _ in ALL]


@pytest.mark.parametrize(("names", "command"), ALL, ids=IDS)
def test_summary_is_a_complete_sentence(names, command):
    summary = command.get_short_help_str(limit=200)
    assert summary.endswith("."), summary
    assert "..." not in summary
    assert not names or len(summary) <= 62, "it would be cut in the list of commands"
    if isinstance(command, click.Group):
        listed = run(*names, "--help").out.decode().partition("Commands:")[2].partition("Examples:")
        assert "..." not in listed[0]


def test_listed_summaries_are_those_of_the_commands():
    assert {names[0]: command.short_help for names, command in ALL if len(names) == 1} == VERBS


@pytest.mark.parametrize(("names", "command"), ALL, ids=IDS)
def test_every_option_has_a_sentence(names, command):
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.endswith("."), option.help


@pytest.mark.parametrize(("names", "command"), ALL, ids=IDS)
def test_help_shows_its_examples(names, command):
    assert isinstance(command, WithExamples)
    assert command.examples, "a help text ends with an example"
    shown = run(*names, "--help").out.decode()
    for purpose, line in command.examples:
        assert line in shown
        assert not purpose.endswith((".", ":"))


EXAMPLES = [line for _, command in ALL for _, line in getattr(command, "examples", ())]


@pytest.mark.parametrize("line", [line for line in EXAMPLES if "stratalog spark" not in line])
def test_example_runs(line, tmp_path, monkeypatch):
    check_example(line, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("line", [line for line in EXAMPLES if "stratalog spark" in line])
def test_example_of_a_job_runs(line, tmp_path, monkeypatch):
    check_example(line, tmp_path, monkeypatch)


def check_example(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with stratalog.open("logs") as logs:
        logs.create("orders", 3)
        logs.append("orders", [(f"customer-{n}", f"{n} apples") for n in range(100)])
    (tmp_path / "server.properties").write_text("log.retention.hours=24\n")
    (tmp_path / "orders.json").write_text('{"id": 1, "customer": "ada"}\n')
    done = run_pipe(line)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert done.out or "--out" in line


@pytest.mark.parametrize(
    ("bounds", "words", "found"),
    [(":+10", ":+10 (first ten)", range(10)), ("-10", "-10 (last ten)", range(10, 20))],
)
def test_ranges_that_the_help_names_are_what_it_says(tmp_path, bounds, words, found):
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t")
        logs.append("t", [str(n) for n in range(20)])
    assert words in " ".join(run("cat", "--help").out.decode().split())
    done = run("cat", tmp_path / "logs", "--offsets", bounds, "--columns", "offset")
    assert [row["offset"] for row in done.rows()] == list(found)
