"""Topics and partitions as they are asked for."""

from __future__ import annotations

import pytest

from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.types import TopicPartition

PLACES = [TopicPartition(topic, n) for topic in ("orders", "order", "pay.v1") for n in range(4)]


def taken(topics=None, partitions=None):
    wanted = partition_filter(topics, partitions)
    wanted.check(PLACES)
    return [str(place) for place in PLACES if wanted.takes(place)]


@pytest.mark.parametrize(
    ("topics", "partitions", "expected"),
    [
        ("order", 1, ["order-1"]),
        (["order", "pay.v1"], [1], ["order-1", "pay.v1-1"]),
        ("order*", "0", ["orders-0", "order-0"]),
        ("order?", "0", ["orders-0"]),
        ("*", 3, ["orders-3", "order-3", "pay.v1-3"]),
        ("pay.v1", "0,2-3", ["pay.v1-0", "pay.v1-2", "pay.v1-3"]),
        ("pay.v1", " 1 , 3 ", ["pay.v1-1", "pay.v1-3"]),
        ("pay.v1", "2-9", ["pay.v1-2", "pay.v1-3"]),
        (("orders",), range(2), ["orders-0", "orders-1"]),
    ],
)
def test_takes(topics, partitions, expected):
    assert taken(topics, partitions) == expected


def test_a_dot_is_a_dot():
    with pytest.raises(UnknownPartitionError):
        taken("pay_v1")
    assert not partition_filter("a.b").takes(TopicPartition("axb", 0))


def test_nothing_asked_for_is_everything():
    assert len(taken()) == len(PLACES)
    assert partition_filter().takes(None)
    assert not partition_filter("orders").takes(None)
    assert not partition_filter(None, 0).takes(None)


@pytest.mark.parametrize(
    ("topics", "partitions", "said"),
    [
        ("ordrs", None, "no topic 'ordrs'; found order, orders, pay.v1"),
        (["orders", "x*"], None, "no topic 'x\\*'"),
        ("order", 7, "no partition 7; found order-0, order-1, order-2, order-3"),
        (None, "0,8-9", "no partition 8-9"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(topics, partitions, said):
    with pytest.raises(UnknownPartitionError, match=said):
        taken(topics, partitions)


def test_a_long_list_is_cut():
    with pytest.raises(UnknownPartitionError, match=r"t00, t01, .* t11 and 8 more$"):
        partition_filter("x").check([TopicPartition(f"t{n:02}", 0) for n in range(20)])
    with pytest.raises(UnknownPartitionError, match="found none"):
        partition_filter("x").check([])


@pytest.mark.parametrize(
    "partitions", ["", "a", "1,", "-1", -1, "3-1", "1--2", "1-2-3", [], [0, -2]]
)
def test_what_is_no_partition_is_refused(partitions):
    with pytest.raises(UsageError, match="0,2-5"):
        partition_filter(None, partitions)


@pytest.mark.parametrize("topics", ["", "a b", "a/b", "[ab]", ["orders", ""], "ü"])
def test_what_is_no_topic_is_refused(topics):
    with pytest.raises(UsageError, match="not a topic name"):
        partition_filter(topics)
    with pytest.raises(UsageError, match="empty"):
        partition_filter([])
