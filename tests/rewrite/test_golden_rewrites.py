"""Every rewrite of what real brokers wrote, in every format since 0.8: the same records, offsets, timestamps
and headers afterwards, but for what was erased."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.types import TopicPartition
from tests.judges.peers.golden import GoldenSet, golden_sets
from tests.rewrite.directories import ROLLED, Row, copy_of, is_sound, rows

SETS = [each for each in golden_sets() if not each.name.startswith("v07")]
#: In make test: a format each, and transactions; the rest in make proof.
QUICK = {"v0-gzip", "v1-lz4", "v1-appendtime", "v2-transactions"}

Rewriting = Callable[[Logs, str], object]
BIG = RewriteOptions(roll=True, configs={"internal.segment.bytes": 1 << 30})

REWRITES: dict[str, Rewriting] = {
    "merge": lambda logs, topic: logs.merge(topic, options=BIG),
    "upgrade": lambda logs, topic: logs.upgrade(topic, options=ROLLED),
    "reindex": lambda logs, topic: logs.reindex(topic, force=True, options=ROLLED),
    **{
        codec: lambda logs, topic, codec=codec: logs.recompress(topic, codec, options=ROLLED)  # type: ignore[misc]
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    },
}


def cases() -> list[object]:
    return [
        pytest.param(
            golden,
            name,
            id=f"{golden.name}-{name}",
            marks=[] if golden.name in QUICK else [pytest.mark.proof],
        )
        for golden in SETS
        for name in REWRITES
    ]


def _is_left(left: dict[TopicPartition, int | None], row: Row) -> bool:
    """Return whether a record lies at or above the offset from which on its partition was left."""
    offset = left[TopicPartition(row[0], row[1])]
    return offset is not None and row[2] >= offset


@pytest.mark.parametrize(("golden", "name"), cases())
def test_a_rewrite_keeps_every_record(golden: GoldenSet, name: str, tmp_path: Path) -> None:
    for copy in copy_of(golden, tmp_path):
        before, committed = rows(copy), rows(copy, isolation="read_committed")
        with stratalog.open(copy) as logs:
            for topic in logs.topics():
                REWRITES[name](logs, topic)
        assert rows(copy) == before
        assert rows(copy, isolation="read_committed") == committed
        assert is_sound(copy)
        with stratalog.open(copy) as logs:
            assert logs.recover() == {}


@pytest.mark.parametrize(
    "golden",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in QUICK else [pytest.mark.proof])
        for each in SETS
    ],
)
def test_an_erasure_removes_just_the_named_keys(golden: GoldenSet, tmp_path: Path) -> None:
    for copy in copy_of(golden, tmp_path):
        before = rows(copy)
        keys = {row[4] for row in before if row[4] is not None}
        erased = sorted(keys)[::3]
        if not erased:
            continue
        with stratalog.open(copy) as logs:
            left: dict[TopicPartition, int | None] = {}
            for topic in logs.topics():
                report = logs.erase(topic, erased, options=ROLLED)
                for each in report.partitions:
                    # What an open transaction is in stays whole.
                    assert each.plan is not None
                    ends = [
                        one.base_offset for one in each.plan.left if "transaction" in one.reason
                    ]
                    left[each.topic_partition] = min(ends, default=None)
        kept = [row for row in before if row[4] not in erased or _is_left(left, row)]
        assert rows(copy) == kept
        assert is_sound(copy)


@pytest.mark.parametrize(
    "golden", [each for each in SETS if each.name in QUICK], ids=lambda g: g.name
)
def test_an_upgraded_log_has_only_batches_of_magic_2(golden: GoldenSet, tmp_path: Path) -> None:
    for copy in copy_of(golden, tmp_path):
        with stratalog.open(copy) as logs:
            for topic in logs.topics():
                logs.upgrade(topic, options=ROLLED)
                again = logs.upgrade(topic)
                assert [each.groups for each in again.partitions] == [()] * len(again.partitions)
