"""A mistyped config, name or number of a partition was found when the log directory, or the topic, was
made already; and one number was as good as any: ``-p 20000`` made 20001 folders."""

from __future__ import annotations

import pytest

import stratalog
from tests.cli.runner import run


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["-t", "t", "-c", "retention.msx=5"], "did you mean retention.ms?"),
        (["-t", "t", "-c", "retention.ms=soon"], "retention.ms: 'soon' is not"),
        (["-t", "a b"], "'a b' is not a topic"),
        (["-t", ".."], "'..' is not a topic"),
        (["-t", "t", "--partitions", 2, "-p", 5], "-p 5 is not among --partitions 2"),
        (["-t", "t", "--partitions", 2, "-p", 2], "-p 2 is not among --partitions 2"),
    ],
)
def test_wrong_command_makes_no_log_directory(tmp_path, arguments, what):
    done = run("produce", tmp_path / "logs", *arguments, stdin="a\n")
    assert (done.code, what in done.err, done.err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("partition", [1000, 20_000, 2_147_483_646])
def test_one_of_very_many_partitions_makes_no_topic(tmp_path, partition):
    done = run("produce", tmp_path, "-t", "t", "-p", partition, stdin="a\n")
    assert done.code == 2
    assert f"partition {partition} is one of very many" in done.err
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topics() == {}


def test_one_of_very_many_is_taken_where_their_number_is_said_or_known(tmp_path):
    arguments = ["produce", tmp_path, "-t", "t", "-p", 1000]
    assert run(*arguments, "--partitions", 1001, stdin="a\n").code == 0
    assert run(*arguments, stdin="b\n").rows()[0]["last_offset"] == 1
