"""Of an append into several partitions one may be refused, or cut short, when others are done: ``produce``
appended lines behind the one that was refused, left out lines before it, and its rows told neither."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog
from stratalog.cli.commands import produce as produce_module
from stratalog.cli.record_lines import read_records
from stratalog.cli.record_target import RecordTarget
from stratalog.errors import UsageError
from stratalog.manager.logs import open_logs
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import Call, Fault, FaultyFileSystem
from tests.cli.runner import Run, command, run

FUTURE = 2**62


def lines(count: int = 100, bad: int = 30, **wrong: Any) -> str:
    """As the reviewer had them: the second half goes to the partition that is appended to first."""
    rows = []
    for number in range(1, count + 1):
        row = {
            "partition": int(number <= count // 2),
            "key": "aw==",
            "value": "dg==",
            "timestamp": number,
        }
        rows.append(json.dumps({**row, **wrong} if number == bad else row))
    return "\n".join(rows) + "\n"


def times(root: Path) -> dict[int, list[int]]:
    """What is in the log: the lines by partition, which their times number."""
    with stratalog.open(root, read_only=True) as logs:
        found: dict[int, list[int]] = {}
        for record in logs.read("t").records():
            found.setdefault(record.partition, []).append(record.timestamp)
        return found


def told(done: Run) -> dict[int, tuple[int, int, int]]:
    return {
        row["partition"]: (row["records"], row["first_offset"], row["last_offset"])
        for row in done.rows()
    }


@pytest.mark.parametrize(
    ("wrong", "config", "what"),
    [
        ({"key": None}, "cleanup.policy=compact", "the record has no key, and the topic is compacted"),
        ({"value": "eHh4" * 1000}, "max.message.bytes=1000", "a batch of "),
        ({"value": "eHh4" * 400000}, "retention.ms=-1", "is above max.message.bytes=1048588"),
        ({"timestamp": FUTURE}, "retention.ms=-1", f"the record is of {FUTURE}, more than "),
        ({"partition": 7}, "retention.ms=-1", "topic 't' has no partition 7"),
        ({"value": 5}, "retention.ms=-1", "'value' must be base64 text"),
    ],
    ids=["no key", "large for the topic", "large", "late", "no such partition", "no record"],
)  # fmt: skip
def test_lines_before_a_refused_one_are_appended_and_none_behind(tmp_path, wrong, config, what):
    done = run(
        "produce", tmp_path, "-t", "t", "-i", "ndjson", "--partitions", 2, "-c", config,
        stdin=lines(**wrong),
    )  # fmt: skip
    assert done.code == 2
    assert done.err.startswith("stratalog: line 30: ")
    assert what in done.err
    assert done.err.count("\n") == 1
    assert times(tmp_path) == {1: list(range(1, 30))}
    assert told(done) == {1: (29, 0, 28)}


def test_what_is_doubtful_and_taken_keeps_its_place(tmp_path):
    large = "eHh4" * 60_000
    text = lines(60, 20, value=large)
    done = run("produce", tmp_path, "-t", "t", "-i", "ndjson", stdin=text)
    assert done.code == 0
    assert times(tmp_path) == {0: list(range(31, 61)), 1: list(range(1, 31))}
    assert told(done) == {0: (30, 0, 29), 1: (30, 0, 29)}


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_topic_that_compresses_anew_takes_many_small_records(tmp_path, codec):
    """Bytes that cannot be compressed grow: the batches of such a topic leave room for it."""
    rng = random.Random(7)
    text = "".join(rng.randbytes(90).hex() + "\n" for _ in range(300))
    done = run(
        "produce", tmp_path, "-t", "t", "-z", codec,
        "-c", "compression.type=lz4", "-c", "max.message.bytes=1000", stdin=text,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert told(done) == {0: (300, 0, 299)}


def test_refusal_that_nobody_foresaw_has_true_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("stratalog.manager.write.acceptance.Acceptance.is_certain", lambda *_: True)
    done = run(
        "produce", tmp_path, "-t", "t", "-i", "ndjson", "-c", "cleanup.policy=compact",
        stdin=lines(key=None),
    )  # fmt: skip
    assert done.code == 2
    assert done.err.startswith("stratalog: line 1 to 100: ")
    assert {each: found[0] for each, found in told(done).items()} == {
        each: len(found) for each, found in times(tmp_path).items()
    }


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_full_disk_has_true_rows(tmp_path, monkeypatch, number):
    """Each chunk of lines goes to two partitions: the disk is full in the middle of one, too."""
    files = FaultyFileSystem(OsFileSystem())
    monkeypatch.setattr(produce_module, "open_logs", partial(open_logs, file_system=files))
    take_turns = RecordTarget._take_turns

    def armed(target: RecordTarget, *args: Any) -> None:
        if not target._begins:  # before the first line
            files.arm(number, fault=Fault.ENOSPC, sticky=True, calls={Call.WRITE})
        take_turns(target, *args)

    monkeypatch.setattr(RecordTarget, "_take_turns", armed)
    done = run("produce", tmp_path, "-t", "t", "-i", "ndjson", stdin=lines(20_000, 0))
    assert done.code == 3
    assert "no space left on device" in done.err.lower()
    files.heal()
    found = times(tmp_path)
    assert told(done) == {each: (len(got), 0, len(got) - 1) for each, got in found.items()}


def test_interrupt_has_true_rows(tmp_path):
    process = subprocess.Popen(
        command("produce", tmp_path / "logs", "-t", "t", "-i", "ndjson", "-o", "ndjson"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(lines(10, 0).encode())
    logs = [tmp_path / "logs" / f"t-{each}" / f"{0:020d}.log" for each in (0, 1)]
    while not all(log.exists() and log.stat().st_size for log in logs):
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"")
    assert told(Run(130, out, "")) == {0: (5, 0, 4), 1: (5, 0, 4)}


RECORDS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "partition": st.integers(0, 3),
            "key": st.sampled_from([None, "YQ==", "Yg==", "Yw=="]),
            "timestamp": st.sampled_from([5, -1, FUTURE, -(2**63)]),
            "headers": st.lists(
                st.tuples(st.text("é😀", max_size=20), st.just("YQ==")), max_size=3
            ),
        },
    ),
    max_size=12,
)


class Lines:
    """A stream that brings some lines at a time."""

    def __init__(self, texts: list[str], at_once: int) -> None:
        joined = ["".join(texts[at : at + at_once]) for at in range(0, len(texts), at_once)]
        self._pieces = [each.encode() for each in joined]

    def read1(self, _: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@given(RECORDS, st.integers(1, 12), st.sampled_from([80, 120, 200, 1_048_588]), st.booleans())
def test_any_records_are_there_up_to_the_first_that_is_refused(
    tmp_path_factory, records, at_once, size, compacts
):
    root = tmp_path_factory.mktemp("logs")
    texts = [
        json.dumps({**each, "value": "eHh4" * number}) + "\n" for number, each in enumerate(records)
    ]
    policy = "compact" if compacts else "delete"
    with stratalog.open(root) as logs:
        logs.create("t", 4, {"max.message.bytes": size, "cleanup.policy": policy})
        target, refused = RecordTarget("t", None, "none"), len(texts)
        try:
            for some in read_records(Lines(texts, at_once), "ndjson"):
                target.append(logs, some)
        except UsageError as error:
            number, colon, _ = str(error).removeprefix("line ").partition(": ")
            assert colon
            refused = int(number) - 1
        rows: list[Any] = target.rows(logs)
        logs.flush()
        found = [len(each.value or b"") for each in logs.read("t").records()]
        assert sorted(found) == [3 * number for number in range(refused)]
        assert sum(row[2] for row in rows) == refused
        for _, partition, count, first, last in rows:
            assert (first, last) == (0, count - 1)
            assert logs.latest("t", partition) == count
