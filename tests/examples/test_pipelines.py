"""The pipelines of examples/, on generated data, with results that are known exactly."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog

pytest.importorskip("pyspark")
pytestmark = pytest.mark.usefixtures("spark")


README = Path(__file__).parents[2] / "examples/README.md"


def records(logs: Path, topic: str):
    with stratalog.open(str(logs), read_only=True) as opened:
        return list(opened.read(topic).records())


def shown(name: str) -> list[list[str]]:
    """What examples/README.md says that each run of a program prints."""
    runs: list[list[str]] = []
    for block in re.findall(
        r"^```console\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            if line.startswith("$ "):
                runs.append([])
                is_wanted = line.split()[2] == f"examples/{name}.py"
            if is_wanted:
                runs[-1].append(line)
    return [run for run in runs if run]


def run_as_shown(main: Callable[[list[str]], int], name: str, folder: Path, capsys) -> None:
    """Each run prints what stands in the README, but for its folder."""
    runs = shown(name)
    assert len(runs) == 2
    for command, *output in runs:
        *_, place = command.split()
        assert main([str(folder)]) == 0
        printed = capsys.readouterr().out.replace(str(folder), place)
        assert printed.splitlines() == output


@pytest.mark.proof
def test_clickstream_writes_every_session_once_and_reads_only_what_is_new(tmp_path, capsys):
    from examples import clickstream

    run_as_shown(clickstream.main, "clickstream", tmp_path / "c", capsys)
    folders = sorted(path.name for path in (tmp_path / "c/sessions").glob("date=*"))
    assert folders == [f"date=2026-01-0{day}" for day in (1, 2, 3, 4)]
    clicks = sum(len(pages) for _, pages in clickstream.sessions_of_days(200, range(4)))
    assert clicks == len(records(tmp_path / "c/logs", "clicks"))


def test_clickstream_expects_what_a_plain_program_finds(tmp_path):
    """The generator's own idea of its sessions, against the rule applied to its clicks."""
    from examples import clickstream

    clicks = [
        (session.user, at, page)
        for session, pages in clickstream.sessions_of_days(30, range(2))
        for at, page in pages
    ]
    random.Random(1).shuffle(clicks)
    found: list[clickstream.Session] = []
    for user, at, page in sorted(clicks):
        last = found[-1] if found else None
        if last is None or last.user != user or at - last.last_ms >= clickstream.GAP_MS:
            found.append(clickstream.Session(user, at, at, 1, page, page))
        else:
            found[-1] = last._replace(last_ms=at, clicks=last.clicks + 1, exit=page)
    newest = max(at for _, at, _ in clicks) - clickstream.LATENESS_MS
    over = [each for each in found if each.last_ms + clickstream.GAP_MS <= newest]
    assert clickstream.finished_sessions(30, 2) == over
    assert 20 < len(over) < len(found), "some are still open"


@pytest.mark.proof
def test_cdc_makes_the_table_and_the_topic_of_what_is_true_now(spark, tmp_path, capsys):
    from examples import cdc

    folder = tmp_path / "c"
    run_as_shown(cdc.main, "cdc", folder, capsys)
    customers = cdc.fold(folder / "logs", cdc.CHANGES)
    assert 700 < len(customers) < 1000, "some are deleted"
    written = records(folder / "logs", cdc.LATEST)
    assert any(record.value is None for record in written)
    with stratalog.open(str(folder / "logs"), read_only=True) as opened:
        assert "compact" in str(opened.topic(cdc.LATEST).config)
    # As after a crash between the last batch and Spark's own record of it: the batch is run again.
    last = max(int(path.name) for path in (folder / "checkpoint/commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (folder / "checkpoint/commits" / name).unlink()
    assert cdc.run(spark, folder) > 0
    assert len(records(folder / "logs", cdc.LATEST)) == len(written)
    table = cdc.latest_version(folder / "table")
    rows = spark.read.parquet(str(table)).collect()
    assert {row.id: (row.name, row.city, row.balance) for row in rows} == customers
    assert len(rows) == len(customers)
    assert len(list((folder / "table").iterdir())) == cdc.VERSIONS_KEPT


@pytest.mark.proof
def test_dead_letters_say_why_and_where_and_are_replayed_once(spark, tmp_path, capsys):
    from examples import dead_letters

    folder = tmp_path / "d"
    run_as_shown(dead_letters.main, "dead_letters", folder, capsys)
    # As after a crash between the replay's commit and Spark's own record of it.
    for name in (folder / "checkpoints/replay/commits").glob("*"):
        name.unlink()
    dead_letters.replay(spark, folder)
    dead_letters.parse(spark, folder)
    logs = folder / "logs"
    assert dead_letters.ledger(logs) == dead_letters.expected_ledger(10_000)
    payments = {(r.partition, r.offset): r for r in records(logs, dead_letters.PAYMENTS)}
    dead = records(logs, dead_letters.DEAD)
    torn = [n for n in range(10_000) if n % 37 == 0]
    commas = [n for n in range(10_000) if n % 10 == 0 and n % 37]
    assert len(dead) == len(torn) + len(commas)
    for letter in dead:
        headers = {each.key: (each.value or b"").decode() for each in letter.headers}
        origin = payments[int(headers["partition"]), int(headers["offset"])]
        assert headers["topic"] == dead_letters.PAYMENTS
        assert (origin.key, origin.value, origin.timestamp) == (
            letter.key,
            letter.value,
            letter.timestamp,
        )
        amount = None if is_torn(letter.value) else json.loads(letter.value)["amount"]
        assert headers["error"] == (
            "no JSON with an id" if amount is None else f"no amount: {amount}"
        )
    assert len(records(logs, dead_letters.PARKED)) == len(torn)


def is_torn(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return True
    return False


def test_formats_come_back_equal(tmp_path, capsys):
    from examples import formats

    assert formats.main(["--records", "2000", "--keep", str(tmp_path / "f")]) == 0
    assert "every record came back equal" in capsys.readouterr().out
