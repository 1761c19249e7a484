"""``cat -o ndjson`` of every golden set is its ``expected.jsonl``, byte for byte."""

from __future__ import annotations

import json
from itertools import groupby

import pytest

from tests.cli.runner import run
from tests.judges.peers.golden import GoldenSet, golden_set, golden_sets

SETS = golden_sets()
KEYS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]


def expected_lines(golden: GoldenSet) -> dict[tuple[str, int], bytes]:
    """The lines of each partition. Sets of 0.7 have two keys more than a record has."""
    with (golden.path / "expected.jsonl").open("rb") as file:
        lines = file.readlines()
    if golden.is_v07:
        rows = [json.loads(line) for line in lines]
        lines = [json.dumps({key: row[key] for key in KEYS}).encode() + b"\n" for row in rows]

    def place(line: bytes) -> tuple[str, int]:
        row = json.loads(line)
        return row["topic"], row["partition"]

    return {key: b"".join(some) for key, some in groupby(lines, place)}


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_cat_prints_what_kafka_read(golden):
    expected = expected_lines(golden)
    for partition in golden.partitions():
        start = golden.log_start_offset(partition.topic, partition.partition)
        bounds = ["--start", start] if start else []
        done = run("cat", "-o", "ndjson", *bounds, *partition.segments)
        assert done.out == expected.get((partition.topic, partition.partition), b"")
        if not golden.damaged:
            assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("partition", "code", "message"),
    [
        (0, 0, "at byte 3973: the last batch is incomplete (short_tail); 712 bytes not read"),
        (1, 1, "at byte 1590: the bytes do not match their CRC (crc_mismatch); restore this"),
        (2, 0, "at byte 3298: only zeros follow"),
    ],
)
def test_torn_tail_warns_and_damage_fails(partition, code, message):
    segments = golden_set("v2-torn").partitions()[partition].segments
    done = run("cat", *segments)
    assert done.code == code
    assert done.err.count("\n") == 1 + code  # and where reading can resume
    assert message in done.err
    assert done.err.startswith("stratalog: warning: " if code == 0 else "stratalog: ")


def test_damage_in_one_partition_leaves_out_nothing_of_the_others():
    golden = golden_set("v2-torn")
    done = run("cat", *(path for p in golden.partitions() for path in p.segments))
    assert done.code == 1
    assert {(row["partition"]) for row in done.rows()} == {0, 1, 2}
    damage, left_out, *torn = done.err.splitlines()
    assert "at byte 1590: the bytes do not match their CRC" in damage
    assert left_out == (
        "stratalog: note: left out: nectar-payments-1 from offset 34 on; reading can resume at offset 39: "
        "--start 39, or --skip-damaged"
    )
    assert len(torn) == 2  # the tails of the first and the third


def test_preallocated_tail_is_a_warning():
    (partition,) = golden_set("v2-preallocated").partitions()
    done = run("cat", *partition.segments)
    assert done.code == 0
    assert "zero_tail" in done.err


def test_control_records_only_on_demand():
    by_topic = {p.topic: p for p in golden_set("v2-transactions").partitions()}
    partition = next(p for topic, p in by_topic.items() if not topic.startswith("__"))
    plain = run("cat", *partition.segments).rows()
    every = run("cat", "--control", "--columns", "offset,is_control", *partition.segments).rows()
    assert [row["offset"] for row in every if not row["is_control"]] == [r["offset"] for r in plain]
    assert any(row["is_control"] for row in every)


def test_no_crc_reads_over_a_wrong_crc(tmp_path):
    path = golden_set("v2-torn").partitions()[1].segments[1]
    assert run("cat", path).code == 1
    assert run("cat", "--no-crc", path).code == 0
