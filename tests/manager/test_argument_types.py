"""Arguments of a wrong type are told in one typed error, and those that can only mean one thing are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.manager.logs import Logs
from tests.manager.logdirs import values


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path / "logs", sync=False) as opened:
        opened.create("a", 2)
        opened.append("a", ["0"], partition=0)
        opened.append("a", ["1"], partition=1)
        yield opened


@pytest.mark.parametrize(
    "call",
    [
        lambda logs: logs.create("b", 1, [("retention.ms", 5)]),
        lambda logs: logs.create(None),
        lambda logs: logs.create(["b"]),
        lambda logs: logs.create("a", "2", exist_ok=True),
        lambda logs: logs.create("a", 2, 5, exist_ok=True),
        lambda logs: logs.create(5, exist_ok=True),
        lambda logs: logs.create(["a"], exist_ok=True),
        lambda logs: logs.create("a", exist_ok=True, no_such_config=1),
        lambda logs: logs.delete_topic(None),
        lambda logs: logs.delete_topic(["a"]),
        lambda logs: logs.alter_configs("a", None),
        lambda logs: logs.alter_configs("a", [("retention.ms", 5)]),
        lambda logs: logs.alter_configs("a", {5: 5}),
        lambda logs: logs.alter_configs("a", {"retention.ms": []}),
        lambda logs: logs.alter_configs(["a"], {"retention.ms": 5}),
        lambda logs: logs.add_partitions("a", "5"),
        lambda logs: logs.read(["o"]),
        lambda logs: logs.read(None),
        lambda logs: logs.read("a", columns=5),
        lambda logs: logs.read("a", batch_rows=2**70),
        lambda logs: logs.tail({"a"}),
        lambda logs: logs.partition(["a"]),
        lambda logs: logs.partition("a", [0]),
        lambda logs: logs.delete_records({}, 0, 0),
        lambda logs: logs.append(["a"], ["x"]),
        lambda logs: logs.read("a", "0"),
        lambda logs: logs.read("a", 1.0),
        lambda logs: logs.read("a", [1.0]),
        lambda logs: logs.read("a", True),
        lambda logs: logs.read("a", object()),
        lambda logs: logs.read("a", batch_rows="5"),
        lambda logs: logs.tail("a", start="0"),
        lambda logs: logs.tail("a", timeout_s="1"),
        lambda logs: logs.latest("a", "0"),
        lambda logs: logs.earliest("a", 0.0),
        lambda _: stratalog.open(None),
        lambda _: stratalog.open("logs", config=5),  # type: ignore[arg-type]
        lambda _: stratalog.open("logs", config={5: 1}),  # type: ignore[dict-item]
        lambda _: stratalog.open(5),  # type: ignore[arg-type]
        lambda _: stratalog.open(b"logs"),  # type: ignore[arg-type]
        lambda _: stratalog.open([]),
        lambda _: stratalog.open("a\0b"),
        lambda _: stratalog.open("\ud800"),
        lambda _: stratalog.scan("a\0b"),
        lambda logs: logs.tail("a", timeout_s=float("nan")),
        lambda logs: logs.tail("a", timeout_s=-1),
    ],
)
def test_wrong_type_is_a_usage_error(logs: Logs, call: Callable[[Logs], Any]) -> None:
    with pytest.raises(UsageError):
        call(logs)


@pytest.mark.parametrize(
    "given",
    [
        {"offsets": 5},
        {"columns": 0},
        {"topics": 0},
        {"topics": [None]},
        {"partitions": 1.5},
        {"batch_rows": 2**63},
        {"start": "5"},
        {"start": 1.5},
        {"end": True},
        {"start_time": "2024-01-01"},
        {"end_time": 1.5},
        {"batch_rows": "5"},
        {"max_batch_bytes": "5"},
        {"columns": "nonsense"},
    ],
)
def test_wrong_type_in_a_scan_is_a_usage_error(tmp_path, logs, given):
    with pytest.raises(UsageError):
        stratalog.scan(tmp_path / "logs", **given)


def test_what_can_only_mean_one_thing_is_taken(tmp_path, logs):
    assert values(logs, "a", np.int64(1)) == [b"1"]
    assert values(logs, "a", [np.int32(1), 1]) == [b"1"]
    assert logs.latest("a", np.int64(1)) == 1
    for given in ({"columns": "offset"}, {"max_batch_bytes": 2**70}, {"start": np.int64(0)}):
        assert stratalog.scan(tmp_path / "logs", **given).to_table().num_rows == 2
    assert stratalog.scan(tmp_path / "logs", columns="offset").columns == ("offset",)


def test_arrow_columns_of_wrong_types_are_usage_errors(logs):
    pa = pytest.importorskip("pyarrow")
    value = pa.array(["x"])
    wrong = [
        pa.record_batch({"value": value, "timestamp": pa.array([2**63], pa.uint64())}),
        pa.Table.from_arrays(
            [value, pa.array([1]), pa.array([2])], ["value", *["timestamp_ms"] * 2]
        ),
    ]
    for data in wrong:
        with pytest.raises(UsageError, match="timestamp"):
            logs.append("a", data)
    assert values(logs, "a") == [b"0", b"1"]


def test_arrow_timestamps_that_are_all_null_are_the_present(logs):
    pa = pytest.importorskip("pyarrow")
    before = logs.now_ms()
    logs.append("a", pa.table({"value": ["x"], "timestamp": pa.nulls(1)}), partition=0)
    stored = list(logs.read("a", 0).records())[-1]
    assert stored.value == b"x"
    assert before <= stored.timestamp <= logs.now_ms()


@pytest.mark.parametrize("large", [False, True])
def test_headers_as_a_list_view(logs, large):
    pa = pytest.importorskip("pyarrow")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kind = pa.large_list_view(header) if large else pa.list_view(header)
    given: list[Any] = [[], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    given += [[{"key": "c", "value": b"3"}]]
    batch = pa.record_batch({"value": list("wxyz"), "headers": pa.array(given, kind)})
    logs.append("a", batch, partition=0)
    logs.append("a", batch.slice(1, 2), partition=1)
    shown = [[(h.key, h.value) for h in each.headers] for each in logs.read("a").records()]
    one, two = [("a", b"1"), ("b", None)], [("c", b"3")]
    assert shown == [[], [], one, [], two, [], one, []]
